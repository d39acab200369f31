"""Values, tensors and handles: the stock client and raw frames against our server (field reports, section 2)."""

import gc
import pathlib
import signal
import struct

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
def raw(board):
    with wire.session(board.address, "client:lab") as raw:
        yield raw


@pytest.fixture
def probe_of(probe):
    """probe_of(session): the probe library, loaded by a stock client."""
    def load(session):
        session.upload(str(probe), "probe.so")
        return session.load_module("probe.so")

    return load


@pytest.mark.parametrize("shapes", [[(5041, 720), (5041, 720)], [(720, 192), (30522, 768)], [(75_000_000,)]])
def test_p01_large_arrays_there_and_back(session, shapes):
    import tvm

    rng = np.random.default_rng(1)
    sent = [rng.random(shape, dtype="float32") for shape in shapes]
    far = [tvm.runtime.tensor(a, session.cpu()) for a in sent]
    for a, b in zip(sent, far):
        assert np.array_equal(a, b.numpy())


def test_p02_an_impossible_allocation_is_an_error_and_the_session_goes_on(session):
    import tvm

    with pytest.raises(tvm.error.RPCError, match="1125899906842624"):
        tvm.runtime.empty((1 << 50,), "int8", session.cpu())
    assert tvm.runtime.tensor(np.arange(3), session.cpu()).numpy().tolist() == [0, 1, 2]


def test_p02_the_same_under_a_memory_limit(farm):
    import tvm
    from tvm import rpc

    session = rpc.connect(*farm.server("--memory-max", "512MiB").address)
    with pytest.raises(tvm.error.RPCError):
        tvm.runtime.empty((1 << 30,), "int8", session.cpu())
    assert tvm.runtime.tensor(np.arange(3), session.cpu()).numpy().tolist() == [0, 1, 2]


def test_p04_a_wrong_version_names_both(board, next_client_ok):
    with wire.Raw(board.address) as raw:
        assert raw.hello("client:lab")[0] == wire.SUCCESS
        with pytest.raises(wire.RemoteError, match=r"(?s)0\.8\.0.*0\.7\.0|0\.7\.0.*0\.8\.0"):
            raw.init("0.7.0")
        assert raw.init() == [None]
    next_client_ok(board, "client:lab")


@pytest.mark.parametrize("value,kinds", [
    (wire.boxed_text(11, 65, "short"), {8, 11}), (wire.boxed_text(65, 65, "a longer text"), {8, 65}),
    (wire.boxed_text(12, 66, "short"), {9, 12}), (wire.boxed_text(66, 66, "longer bytes"), {9, 66}),
    ("raw", {8, 11}), (wire.Value(wire.RAW_BYTES, struct.pack("<Q", 4) + b"view"), {9, 12, 66}),
], ids=["small-str", "str", "small-bytes", "bytes", "raw-str", "byte-view"])
def test_p05_every_string_kind_is_taken(raw, probe, value, kinds):
    argtype = raw.member(raw.load(pathlib.Path(probe).read_bytes()), "argtype")
    assert raw.call(argtype, value)[1] in kinds


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100])
def test_p05_texts_and_bytes_arrive_whole(session, length):
    array, item = session.get_function("ffi.Array"), session.get_function("ffi.ArrayGetItem")
    text = ("äß€😀x" * 20)[:length]
    assert item(array(text), 0) == text
    for data in (bytes(range(length)), bytearray(b"\0" * length)):
        assert item(array(data), 0) == bytes(data)


def test_p06_a_call_without_arguments_and_its_evaluator(session, probe_of):
    module = probe_of(session)
    assert module["noargs"]() == 42
    assert module["nargs"]() == 0
    assert len(module.time_evaluator("noargs", session.cpu(), number=3, repeat=2)().results) == 2


def test_p07_a_container_is_refused_with_its_type_and_a_map_comes_back(session):
    import tvm

    array = session.get_function("ffi.Array")
    for value in ([1], {"a": 1}, (1, 2), tvm.runtime.ShapeTuple([1, 2]), lambda: 0):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            array(value)
    found = session.get_function("ffi.Map")("k", 7)
    assert session.get_function("ffi.MapGetItem")(found, "k") == 7
    assert session.get_function("ffi.MapSize")(found) == 1


def test_p08_scalars_of_every_sort(session, probe_of):
    argtype = probe_of(session)["argtype"]
    for value, kind in [(np.float16(1), wire.FLOAT), (np.float32(1), wire.FLOAT), (1.5, wire.FLOAT), (7, wire.INT),
                        (True, wire.BOOL), (None, wire.NONE)]:
        assert argtype(value) == kind
    import tvm_ffi

    assert argtype(tvm_ffi.dtype("bfloat16")) == wire.DTYPE


def worker_memory_kb(session, probe_of):
    pid = probe_of(session)["getpid_"]()
    return lambda: peers.memory_kb(pid)


def test_p09_returned_tensors_are_freed(session, probe_of):
    memory = worker_memory_kb(session, probe_of)
    allocate = session.get_function("runtime.TVMTensorAllocWithScope")
    shape = session.get_function("ffi.Shape")(256, 1024)
    import tvm_ffi

    def some(times):
        for _ in range(times):
            allocate(shape, tvm_ffi.dtype("float32"), session.cpu(), None)

    try:
        some(20)
    except Exception as e:  # the stock client refuses remote devices as arguments
        pytest.skip(f"the stock client cannot pass a device: {e}")
    before = memory()
    some(980)
    assert memory() - before < 4096


def test_p09_returned_tensors_are_freed_by_raw_frames(raw, probe):
    pid = raw.call(raw.member(raw.load(pathlib.Path(probe).read_bytes()), "getpid_"))[1]
    allocate = raw.get("runtime.TVMTensorAllocWithScope")
    shape = raw.call_named("ffi.Shape", 256, 1024)[1]

    def some(times):
        for _ in range(times):
            answer = raw.call(allocate, wire.remote(shape), wire.dtype(*wire.FLOAT32), wire.device(), None)
            assert answer[0] == wire.TENSOR and answer[1]["shape"] == (256, 1024)
            raw.system(wire.FREE_HANDLE, wire.pointer(answer[2]))

    some(20)
    before = peers.memory_kb(pid)
    some(980)
    assert peers.memory_kb(pid) - before < 4096


def test_p09_a_handle_that_was_never_given_or_freed_twice_is_an_error(raw, board, next_client_ok):
    for handle in (0x1234, 1, (1 << 63) + 5):
        with pytest.raises(wire.RemoteError):
            raw.system(wire.FREE_HANDLE, wire.pointer(handle))
    handle = raw.get("ffi.Shape")
    assert raw.system(wire.FREE_HANDLE, wire.pointer(handle)) is None
    with pytest.raises(wire.RemoteError):
        raw.system(wire.FREE_HANDLE, wire.pointer(handle))
    assert raw.system(wire.FREE_HANDLE, wire.pointer(0)) is None
    assert raw.system(wire.FREE_HANDLE, None) is None
    assert raw.get("ffi.Shape")
    raw.close()
    next_client_ok(board, "client:lab")


ORPHAN = """
import sys, numpy as np, tvm
from tvm import rpc
session = rpc.connect("127.0.0.1", int(sys.argv[1]))
far = tvm.runtime.tensor(np.zeros(4, "float32"), session.cpu())
shape = session.get_function("ffi.Shape")
print("holding", flush=True)
sys.stdin.readline() if False else None
import os, time
while os.path.exists(sys.argv[2]):
    pass
try:
    far.numpy()
    print("no error")
except Exception as e:
    print("raised", type(e).__name__)
del far, shape, session
print("quiet end")
"""


def test_p10_dropping_handles_is_quiet_when_the_server_is_gone(farm, tmp_path):
    server, gate = farm.server(), tmp_path / "gate"
    gate.touch()
    client = farm.python(ORPHAN, server.port, gate)
    client.wait_for("holding", 30.0)
    workers = peers.descendants(server.pid)
    server.kill()
    peers.until(lambda: not any(map(peers.alive, workers)), 5.0)
    gate.unlink()
    client.wait_for("raised", 5.0)
    client.wait_for("quiet end", 5.0)
    assert client.wait() == 0


def test_p11_local_things_are_refused_and_the_session_goes_on(session):
    import tvm

    array = session.get_function("ffi.Array")
    for value in (tvm.runtime.tensor(np.zeros(3)), np.zeros(3), tvm.cpu()):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            array(value)
    assert session.get_function("ffi.ArraySize")(array(1, 2)) == 2


def test_p12_tuples_and_shapes_are_held_and_passed_back(session, probe_of):
    import tvm

    memory = worker_memory_kb(session, probe_of)
    make, item = session.get_function("vm.builtin.make_tuple"), session.get_function("vm.builtin.tuple_getitem")
    pair = make(11, 22)
    assert item(pair, 1) == 22
    assert item(item(make(pair, 3), 0), 0) == 11
    with pytest.raises(tvm.error.RPCError):
        item(pair, 9)
    shape = session.get_function("ffi.Shape")
    assert session.get_function("rpc.testing.GetShapeElem")(shape(8, 2), 0) == 8
    for _ in range(200):
        make(1, 2)
    before = memory()
    for _ in range(10_000):
        make(1, 2)
    assert memory() - before < 2048


def test_p13_the_devices_masked_number_is_a_clear_error(session):
    import tvm

    masked = session.cpu().dlpack_device_type()
    assert masked >= 128
    with pytest.raises(tvm.error.RPCError, match=str(masked)):
        session.get_function("runtime.GetDeviceAttr")(masked, 0, 1)
    assert session.get_function("ffi.ArraySize")(session.get_function("ffi.Array")(1)) == 1


def test_p14_many_objects_and_functions_come_and_go(raw, probe):
    pid = raw.call(raw.member(raw.load(pathlib.Path(probe).read_bytes()), "getpid_"))[1]
    make = raw.get("vm.builtin.make_tuple")
    call = wire.pack(11, 22)

    def some(times):
        """Pairs of make and free, a hundred requests sent ahead of their answers."""
        for _ in range(times // 100):
            for _ in range(100):
                raw.frame(wire.CALL_FUNC, struct.pack("<Q", make) + call)
                raw.frame(wire.GET_GLOBAL_FUNC, wire.pack("ffi.Shape"))
            handles = []
            for _ in range(100):
                handles += [raw.answer()[1], raw.answer()[0]]
            for handle in handles:
                raw.frame(wire.FREE_HANDLE, wire.pack(wire.pointer(handle)))
            for _ in handles:
                assert raw.answer() == [None]

    some(5_000)
    before = peers.memory_kb(pid)
    some(50_000)
    assert peers.memory_kb(pid) - before < 2048


def test_a_copy_beyond_the_end_is_an_error(raw):
    handle = raw.system(wire.ALLOC_SCOPE, wire.tensor(0, (16,)), None)
    for shape, offset, size in [((1024,), 0, 4096), ((16,), 64, 64), ((16,), 1 << 62, 64)]:
        with pytest.raises(wire.RemoteError):
            raw.copy_from(wire.tensor_bytes(handle, shape, offset=offset), size)
        with pytest.raises(wire.RemoteError):
            raw.copy_to(wire.tensor_bytes(handle, shape, offset=offset), bytes(size))
    assert raw.copy_from(wire.tensor_bytes(handle, (16,)), 64) is not None


def test_a_shape_that_overflows_is_an_error(raw):
    for shape in [(1 << 40, 1 << 40), (-1,), (1 << 62, 4), (1 << 61,)]:
        with pytest.raises(wire.RemoteError):
            raw.system(wire.ALLOC_SCOPE, wire.tensor(0, shape), None)
    assert raw.system(wire.ALLOC_SCOPE, wire.tensor(0, (1 << 40, 0)), None) is not None


def test_a_null_or_foreign_handle_is_an_error(raw):
    for handle in (0, 0xDEADBEEF, 2**64 - 1):
        with pytest.raises(wire.RemoteError):
            raw.call(handle)
        with pytest.raises(wire.RemoteError):
            raw.copy_from(wire.tensor_bytes(handle, (4,)), 16)
    for handle in (0xDEADBEEF, 2**64 - 1):
        with pytest.raises(wire.RemoteError):
            raw.system(wire.DEV_FREE, wire.device(), wire.pointer(handle))
    assert raw.get("ffi.Shape")


@pytest.mark.parametrize("body", [
    b"", struct.pack("<i", -1), struct.pack("<i", 2**31 - 1), struct.pack("<ii", 1, 10), struct.pack("<ii", 1, 64),
    struct.pack("<iiQ", 1, wire.RAW_STR, 2**63), wire.pack("ffi.Shape") + b"more",
], ids=["empty", "negative", "huge-count", "unknown-type", "unknown-inner", "long-string", "left-over"])
def test_a_malformed_sequence_is_an_error_or_the_end_of_that_session(board, body, next_client_ok):
    with wire.session(board.address, "client:lab") as raw:
        with pytest.raises((wire.RemoteError, wire.Closed)):
            raw.ask(wire.GET_GLOBAL_FUNC, body)
    next_client_ok(board, "client:lab")


@pytest.mark.parametrize("code", [0, -1, 4, 5, 8, 22, 99, 2**31 - 1])
def test_a_code_that_no_client_sends_is_answered_with_the_reason(board, code, next_client_ok):
    with wire.session(board.address, "client:lab") as raw:
        with pytest.raises((wire.RemoteError, wire.Closed)):
            raw.ask(code, wire.pack(1))
    next_client_ok(board, "client:lab")


def test_an_unknown_device_is_an_error(raw):
    for kind in (99, -1, 2**31 - 1, 2):
        with pytest.raises(wire.RemoteError):
            raw.system(wire.ALLOC_SCOPE, wire.tensor(0, (4,), dev=(kind, 0)), None)
        with pytest.raises(wire.RemoteError):
            raw.system(wire.STREAM_SYNC, wire.device(kind), wire.pointer(0))
    assert raw.system(wire.DEV_ATTR, wire.device(1), 0) == 1


def test_a_returned_view_carries_its_offset_in_the_handle(raw):
    handle = raw.system(wire.ALLOC_SCOPE, wire.tensor(0, (8,)), None)
    raw.copy_to(wire.tensor_bytes(handle, (8,)), np.arange(8, dtype="float32").tobytes())
    shape = raw.call_named("ffi.Shape", 8)[1]
    whole = raw.call_named("runtime.TVMTensorAllocWithScope", wire.remote(shape), wire.dtype(*wire.FLOAT32),
                           wire.device(), None)
    raw.copy_to(wire.tensor_bytes(whole[1]["handle"], (8,)), np.arange(8, dtype="float32").tobytes())
    part = raw.call_named("ffi.Shape", 2)[1]
    view = raw.call_named("runtime.TVMTensorCreateView", wire.remote(whole[2]), wire.remote(part),
                          wire.dtype(*wire.FLOAT32), 16)
    assert view[0] == wire.TENSOR and view[1]["offset"] == 0
    data = raw.copy_from(wire.tensor_bytes(view[1]["handle"], (2,)), 8)
    assert np.frombuffer(data, "float32").tolist() == [4.0, 5.0]


def test_thirty_sessions_one_after_the_other(board, probe_of):
    from tvm import rpc

    for _ in range(30):
        session = rpc.connect(*board.address, "lab")
        assert probe_of(session)["noargs"]() == 42
        del session
        gc.collect()


def test_a_killed_client_frees_the_board(board, farm, next_client_ok):
    client = farm.python("""
import sys
from tvm import rpc
session = rpc.connect("127.0.0.1", int(sys.argv[1]), "lab")
print("there", flush=True)
session.get_function("ffi.Shape")
sys.stdin.read()
while True:
    session.get_function("ffi.Shape")
""", board.port)
    client.wait_for("there", 30.0)
    client.signal(signal.SIGKILL)
    next_client_ok(board, "client:lab")
