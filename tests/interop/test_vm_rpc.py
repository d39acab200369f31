"""The virtual machine over RPC from the stock client: field-reports.md, section 7, and more of the class."""

import json
import pathlib
import struct

import numpy as np
import pytest

import vm_models



@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def library(request, tmp_path_factory):
    return vm_models.build(tmp_path_factory.mktemp("vm"), request.param)


class Remote:
    """A stock session with the recipes' library loaded in a VM."""

    def __init__(self, server, library, memory=None):
        from tvm import relax, rpc

        self.session = rpc.connect("127.0.0.1", server.port, session_timeout=120)
        self.session.upload(str(library))
        self.device = self.session.cpu(0)
        self.module = self.session.load_module(pathlib.Path(library).name)
        self.vm = relax.VirtualMachine(self.module, self.device, memory_cfg=memory)

    def tensor(self, array):
        import tvm

        return tvm.runtime.tensor(np.asarray(array), self.device)

    def get(self, name):
        return self.session.get_function(name)


@pytest.fixture
def remote(server, library):
    return Remote(server, library)


X = np.arange(24, dtype="float32").reshape(3, 8)
W = vm_models.weights()


def near(tensor, array):
    np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-5)


def test_v01_functions_are_called_directly(remote):
    near(remote.vm["mm"](remote.tensor(X), remote.tensor(W)), X @ W)
    near(remote.vm["resh"](remote.tensor(X)), X.reshape(-1))


def test_v02_inputs_are_set_by_name(remote):
    vm = remote.vm
    vm.set_input("mm", w=remote.tensor(W), x=remote.tensor(X))
    vm.invoke_stateful("mm")
    near(vm.get_outputs("mm"), X @ W)
    with pytest.raises(Exception):
        vm.set_input("mm", w=remote.tensor(W), y=remote.tensor(X))


def test_v04_tuples_come_back(remote):
    vm = remote.vm
    vm.set_input("tup", remote.tensor(X))
    vm.invoke_stateful("tup")
    twice, (square, same) = vm.get_outputs("tup")
    near(twice, X + X)
    near(square, X * X)
    near(same, X)
    item = remote.get("vm.builtin.tuple_getitem")
    result = vm["tup"](remote.tensor(X))
    near(item(item(result, 1), 0), X * X)
    near(item(item(result, 1), 1), X)


def test_v05_a_wrong_shape_is_named_and_the_vm_goes_on(remote):
    vm = remote.vm
    w = remote.tensor(W)
    wrong = [np.ones((3, 9), "float32"), np.ones((3, 8), "float64"), np.ones(8, "float32")]
    for _ in range(3):
        for bad in wrong:
            with pytest.raises(Exception) as error:
                vm["mm"](remote.tensor(bad), w)
            text = str(error.value)
            assert "fn=mm" in text and "param=x" in text, text
            assert any(wanted in text for wanted in ("8", "float32", "2")), text
            near(vm["mm"](remote.tensor(X), w), X @ W)


def test_v06_every_misuse_gets_a_sentence(remote):
    vm = remote.vm.module
    x = remote.tensor(X)
    for call, words in (
        (lambda: vm["set_input"]("mm", x), ("x, w", "1", "2")),
        (lambda: vm["set_input"]("mmm", x), ("mmm", "mm")),
        (lambda: vm["invoke_stateful"]("mm"), ("mm", "set_input")),
        (lambda: vm["get_output"]("mm"), ("mm", "invoke_stateful")),
        (lambda: remote.vm["mm"](x), ("mm", "x, w", "1", "2")),
    ):
        with pytest.raises(Exception) as error:
            call()
        assert all(word in str(error.value) for word in words), str(error.value)


def test_v08_tensors_stay_inside_their_storage(remote):
    # A storage is only had inside the VM; the builtin refuses what the client can send.
    alloc = remote.get("vm.builtin.alloc_tensor")
    with pytest.raises(Exception):
        alloc(remote.tensor(X), 0, remote.get("ffi.Shape")(64), "float32")
    with pytest.raises(Exception, match="(?i)alloc|memory|bytes"):
        remote.vm["big"](remote.tensor(np.zeros(1, "float32")))
    near(remote.vm["mm"](remote.tensor(X), remote.tensor(W)), X @ W)


def test_results_that_are_the_argument_are_safe(remote):
    x = remote.tensor(X)
    for _ in range(3):
        near(remote.vm["ident"](x), X)
    pair = remote.get("vm.builtin.make_tuple")(x, 5)
    del x
    near(remote.get("vm.builtin.tuple_getitem")(pair, 0), X)


def test_saved_functions_and_closures_are_timed_and_called(remote):
    vm = remote.vm
    vm.save_function("mm", "bound", remote.tensor(X), remote.tensor(W), include_return=True)
    near(vm["bound"](), X @ W)
    vm.save_function("mm", "quiet", remote.tensor(X), remote.tensor(W), include_return=False)
    assert vm["quiet"]() is None
    timed = vm.time_evaluator("quiet", remote.device, number=3, repeat=2)()
    assert len(timed.results) == 2 and min(timed.results) > 0


def test_v21_a_profile_has_each_call(remote, library):
    vm = remote.vm.module
    report = json.loads(vm["profile"]("mm", remote.tensor(X), remote.tensor(W)))
    if "compiled" not in library.name:
        rows = [row for row in report["calls"] if row["Name"] == "matmul"]
        assert rows and rows[0]["Duration (us)"]["microseconds"] > 0
        assert "float32[3, 8]" in rows[0]["Argument Shapes"]
    assert report["configuration"]["Executor"] == "VM"


def test_v20_an_input_with_a_byte_offset_is_right(remote):
    rows = np.arange(40, dtype="float32").reshape(5, 8)
    view = remote.get("runtime.TVMTensorCreateView")
    whole = remote.tensor(rows)
    shape = remote.get("ffi.Shape")(3, 8)
    part = view(whole, shape, "float32", 32)
    near(remote.vm["mm"](part, remote.tensor(W)), rows[1:4] @ W)


def test_naive_memory_works_too(server, library):
    remote = Remote(server, library, "naive")
    near(remote.vm["mm"](remote.tensor(X), remote.tensor(W)), X @ W)


def test_p13_the_older_cache_takes_a_remote_tensor(server):
    import tvm
    from tvm import rpc

    session = rpc.connect("127.0.0.1", server.port)
    get = session.get_function
    device = session.cpu(0)
    start = np.zeros((8, 2), "float32")
    cache = get("vm.builtin.attention_kv_cache_create")(tvm.runtime.tensor(start, device), get("ffi.Shape")(8, 2), 0)
    for k in range(3):
        row = np.full((1, 2), k, "float32")
        cache = get("vm.builtin.attention_kv_cache_append")(cache, tvm.runtime.tensor(row, device))
    view = get("vm.builtin.attention_kv_cache_view")(cache)
    near(view, np.array([[0, 0], [1, 1], [2, 2]], "float32"))


def broken(path, change):
    """The library with its executable's bytes changed in place."""
    data = bytearray(pathlib.Path(path).read_bytes())
    at = data.index(struct.pack("<Q", 0xD225DE2F4214151E))
    change(data, at)
    out = pathlib.Path(path).with_name("broken.so")
    out.write_bytes(data)
    return out


def test_v09_a_foreign_executable_is_refused_in_words(server, library):
    from tvm import rpc

    session = rpc.connect("127.0.0.1", server.port)

    def version(data, at):
        data[at + 16:at + 20] = b"0.13"

    def magic(data, at):
        data[at] ^= 0xFF

    def count(data, at):
        data[at + 20:at + 28] = struct.pack("<Q", 2**63 - 1)

    for change, words in ((version, ("0.13", "0.14")), (magic, ("magic", "expected")), (count, ("functions", "left"))):
        session.upload(str(broken(library, change)), target=f"{change.__name__}.so")
        with pytest.raises(Exception) as error:
            session.load_module(f"{change.__name__}.so")
        assert all(word in str(error.value) for word in words), str(error.value)
    session.upload(str(library), target="good.so")
    session.load_module("good.so")


def test_v11_a_half_downloaded_shard_is_named(server, tmp_path):
    from tvm import rpc

    session = rpc.connect("127.0.0.1", server.port)
    record = {"name": "w", "shape": [4], "dtype": "float32", "format": "raw", "nbytes": 16, "byteOffset": 0}
    index = {"records": [{"dataPath": "shard.bin", "format": "raw-shard", "nbytes": 16, "records": [record]}]}
    session.upload(bytearray(json.dumps(index).encode()), target="tensor-cache.json")
    session.upload(bytearray(b"0123456789"), target="shard.bin")
    folder = session.get_function("tvm.rpc.server.workpath")("")
    load = session.get_function("vm.builtin.tensor_cache.load")
    with pytest.raises(Exception, match="shard.bin.*10 bytes.*16"):
        load(folder, 1, 0)
    session.upload(bytearray(np.arange(4, dtype="float32").tobytes()), target="shard.bin")
    load(folder, 1, 0)
    near(session.get_function("vm.builtin.tensor_cache.get")("w"), np.arange(4))
