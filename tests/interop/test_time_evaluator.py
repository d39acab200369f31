"""Measuring on the board with the stock client (field reports, section 5)."""

import time

import numpy as np
import pytest

import peers
import wire


@pytest.fixture(scope="module")
def board():
    farm = peers.Farm()
    yield farm.server("--slots", "8", key="lab")
    farm.close()


@pytest.fixture
def session(board):
    from tvm import rpc

    return rpc.connect(*board.address, "lab")


@pytest.fixture
def module(session, probe):
    session.upload(str(probe), "probe.so")
    return session.load_module("probe.so")


def test_e01_a_function_that_takes_no_time_ends(session, module):
    evaluate = module.time_evaluator("noargs", session.cpu(), number=1, repeat=2, min_repeat_ms=100)
    began = time.monotonic()
    assert len(evaluate().results) == 2
    assert time.monotonic() - began < 10.0


def test_e02_cooling_down_takes_its_time_and_changes_no_result(session, module):
    evaluate = module.time_evaluator("sleep_ms", session.cpu(), number=1, repeat=4, cooldown_interval_ms=200,
                                     repeats_to_cooldown=2)
    began = time.monotonic()
    results = evaluate(5).results
    assert time.monotonic() - began >= 0.4
    assert len(results) == 4
    assert min(results) >= 0.005


def test_e04_too_few_arguments_name_the_count(session):
    import tvm

    make = session.get_function("runtime.RPCTimeEvaluator")
    with pytest.raises(tvm.error.RPCError, match="12"):
        make(None, "ffi.Shape", 1, 0, 1, 1, 0)
    assert session.get_function("ffi.Shape")(1) is not None


def test_e05_a_sleep_is_measured_as_its_length(session, module):
    result = module.time_evaluator("sleep_ms", session.cpu(), number=2, repeat=3)(20)
    assert min(result.results) >= 0.020


def test_a_kernel_is_measured(session, kernels):
    import tvm

    session.upload(str(kernels))
    far = [tvm.runtime.tensor(np.ones((128, 128), "float32"), session.cpu()) for _ in range(3)]
    module = session.load_module("kernels.so")
    result = module.time_evaluator("add", session.cpu(), number=5, repeat=7, min_repeat_ms=1)(*far)
    assert len(result.results) == 7 and result.min > 0
    assert (far[2].numpy() == 2).all()
    flushed = module.time_evaluator("add", session.cpu(), number=2, repeat=2, f_preproc="cache_flush_cpu_non_first_arg")
    assert len(flushed(*far).results) == 2


def test_a_global_function_is_measured(board):
    with wire.session(board.address, "client:lab") as raw:
        made = raw.call_named("runtime.RPCTimeEvaluator", None, "ffi.Shape", 1, 0, 10, 3, 0, 100, 0, 1, 0, "")
        assert len(raw.call(made[1], 1, 2)[1]) == 3 * 8


def test_an_unknown_function_is_an_error_when_the_evaluator_is_made(session, module):
    import tvm

    with pytest.raises(tvm.error.RPCError, match="no_such_function"):
        module.time_evaluator("no_such_function", session.cpu())


def test_an_unknown_preprocessing_function_is_an_error(session, module):
    import tvm

    with pytest.raises(tvm.error.RPCError, match="no.such.preproc"):
        module.time_evaluator("noargs", session.cpu(), f_preproc="no.such.preproc")()


def test_an_evaluator_that_would_never_end_is_ended_by_the_session_timeout(board, probe, next_client_ok):
    import tvm
    from tvm import rpc

    session = rpc.connect(*board.address, "lab", session_timeout=1)
    session.upload(str(probe), "probe.so")
    module = session.load_module("probe.so")
    with pytest.raises(tvm.error.RPCSessionTimeoutError):
        module.time_evaluator("sleep_ms", session.cpu(), number=1_000_000, repeat=1)(50)
    next_client_ok(board, "client:lab")
