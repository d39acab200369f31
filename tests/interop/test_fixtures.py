"""The fixtures themselves, tried on the stock peer: what fails here is the test bed, not the product."""

import numpy as np
import pytest

import wire
from tracker_wire import RawTracker, SUMMARY


@pytest.fixture(scope="module")
def stock():
    import peers

    farm = peers.Farm()
    tracker = farm.stock_tracker()
    yield tracker, farm.stock_server("bed", tracker), farm.stock_server("plain")
    farm.close()


def test_next_client_is_served_by_the_stock_server(stock, next_client_ok):
    next_client_ok(stock[2], "client:plain", limit=10.0)


def test_raw_tracker_sees_the_registered_stock_server(stock):
    tracker, server, _ = stock
    with RawTracker(tracker.address) as raw:
        info = raw.talk([SUMMARY])[1]["server_info"]
    assert [i["key"] for i in info] == ["server:bed"]
    assert info[0]["addr"][1] == server.port


def test_raw_call_and_tensor_round_trip(stock):
    with wire.session(stock[2].address, "client:plain") as raw:
        data = np.arange(8, dtype="float32").tobytes()
        shape = (2, 4)
        handle = raw.system(wire.ALLOC_SCOPE, wire.tensor(0, shape), None)
        raw.copy_to(wire.tensor_bytes(handle, shape), data)
        assert raw.copy_from(wire.tensor_bytes(handle, shape), len(data)) == data
        raw.system(wire.DEV_FREE, wire.device(), wire.pointer(handle))
        with pytest.raises(wire.RemoteError):
            raw.call_named("tvm.rpc.server.load_module", "absent.so")


def test_kernels_run_on_the_stock_server(stock, kernels):
    import tvm
    from tvm import rpc

    session = rpc.connect(*stock[2].address, "plain")
    session.upload(str(kernels))
    module = session.load_module("kernels.so")
    a = tvm.runtime.tensor(np.arange(4, dtype="float32"), session.cpu())
    b = tvm.runtime.empty((4,), "float32", session.cpu())
    module["add_one"](a, b)
    np.testing.assert_array_equal(b.numpy(), [1, 2, 3, 4])
