"""Recorded conversations of stock peers, played again to our server."""

import pathlib
import platform

import pytest

import peers
from replay import Replay

PLAIN = ["connect_addone", "constructor_error", "exception", "files", "init_errors", "mismatch", "tensors", "values",
         "timeout_idle", "timeout_in_call"]
WITH_X86_CODE = ["load_module", "time_evaluator", "tuner_runner"]


def libraries():
    """Operator's libraries with the functions that the recordings call."""
    import tvm_ffi.libinfo

    testing = pathlib.Path(tvm_ffi.libinfo.find_libtvm_ffi()).with_name("libtvm_ffi_testing.so")
    return f"{testing}:{peers.needed('replay_functions.so')}"


@pytest.fixture(scope="module")
def board():
    farm = peers.Farm()
    yield farm.server("--load-library", libraries(), key="dev")
    farm.close()


@pytest.mark.parametrize("name", PLAIN)
def test_conversation(board, name):
    Replay(board.address, "dev").play(name)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the recorded libraries are x86-64 code")
@pytest.mark.parametrize("name", WITH_X86_CODE)
def test_conversation_with_compiled_code(board, name):
    Replay(board.address, "dev").play(name)


def test_conversation_over_a_hop(farm):
    inner = farm.server("--load-library", libraries(), key="inner")
    outer = farm.server(key="dev")
    Replay(outer.address, "dev", ports={"inner": inner.port}).play("nested_outer")
