"""Files and libraries on the board with the stock client (field reports, section 6)."""

import io
import os
import pathlib
import struct
import subprocess
import tarfile

import numpy as np
import pytest

import models
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


def error():
    import tvm

    return tvm.error.RPCError


def files_below(folder):
    """What sessions left: the server's own lock beside their folders does not count."""
    return [p for p in pathlib.Path(folder).rglob("*") if p.is_file() and p.name.endswith((".bin", ".so"))]


@pytest.mark.parametrize("end", ["normal", "timeout", "killed client", "crash"])
def test_f01_the_folder_goes_with_the_session(farm, tmp_path, probe, end):
    server = farm.server("--work-dir", tmp_path)
    key = "client: -timeout=1" if end == "timeout" else "client:"
    raw = wire.session(server.address, key)
    raw.call_named("tvm.rpc.server.upload", "big.bin", bytes(10_000_000))
    assert any(p.stat().st_size == 10_000_000 for p in files_below(tmp_path))
    if end == "normal":
        raw.frame(wire.SHUTDOWN)
    elif end == "timeout":
        with pytest.raises(wire.RemoteError, match="RPCSessionTimeoutError"):
            raw.answer()
    elif end == "killed client":
        raw.reset()
    else:
        with pytest.raises((wire.RemoteError, wire.Closed)):
            raw.call(raw.member(raw.load(pathlib.Path(probe).read_bytes()), "crash"))
    peers.until(lambda: not files_below(tmp_path), 2.0)
    raw.close()


def test_f01_folders_of_a_killed_server_go_when_it_starts_again(farm, tmp_path):
    server = farm.server("--work-dir", tmp_path)
    raw = wire.session(server.address)
    raw.call_named("tvm.rpc.server.upload", "big.bin", bytes(1000))
    server.kill()
    raw.close()
    farm.server("--work-dir", tmp_path)
    peers.until(lambda: not files_below(tmp_path), 2.0)


def test_f02_what_lies_on_the_board_can_be_listed(session):
    session.upload(bytearray(b"one"), "a.txt")
    session.upload(bytearray(b"two"), "b.txt")
    names = session.listdir(".")
    assert "a.txt" in str(names) and "b.txt" in str(names)
    try:
        assert "a.txt" not in str(session.listdir("no-such-folder"))
    except error():
        pass
    assert session.download("a.txt") == b"one"


def test_upload_download_remove(session):
    for size in (0, 1, 7, 8, 100_000):
        data = os.urandom(size)
        session.upload(bytearray(data), "x.bin")
        assert session.download("x.bin") == data
    session.remove("x.bin")
    session.remove("x.bin")
    session.remove("")
    session.remove("no-such-file")
    with pytest.raises(error(), match="x.bin"):
        session.download("x.bin")


def run_add_one(session, module):
    import tvm

    a = tvm.runtime.tensor(np.arange(4, dtype="float32"), session.cpu())
    b = tvm.runtime.empty((4,), "float32", session.cpu())
    module["add_one"](a, b)
    assert b.numpy().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("suffix", [".o", ".tar", ".so"])
def test_f03_objects_are_linked_on_the_board(session, tmp_path, suffix):
    path = models.build_kernels(tmp_path, suffix)
    session.upload(str(path))
    run_add_one(session, session.load_module(path.name))


@pytest.mark.parametrize("suffix", [".o", ".tar", ".so"])
def test_f03_the_linked_library_comes_back(session, tmp_path, suffix):
    path = models.build_kernels(tmp_path, suffix)
    session.upload(str(path))
    library = bytes(session.download_linked_module(path.name))
    assert library[:4] == b"\x7fELF" and struct.unpack_from("<H", library, 16)[0] == 3
    (tmp_path / "back.so").write_bytes(library)
    session.upload(str(tmp_path / "back.so"))
    run_add_one(session, session.load_module("back.so"))


@pytest.mark.parametrize("name,reason", [("junk.o", "junk"), ("junk.tar", "Tar error"), ("junk.so", "junk"),
                                         ("junk.bin", r"Loader for `\.bin` files"), ("junk", "Loader for")])
def test_f03_junk_is_refused_with_the_reason(session, name, reason):
    session.upload(bytearray(b"this is no object of any kind\n" * 10), name)
    with pytest.raises(error(), match=reason):
        session.load_module(name)
    with pytest.raises(error(), match="no-such.so"):
        session.load_module("no-such.so")
    assert session.get_function("ffi.Shape")


def test_f03_a_board_without_a_compiler_says_so(farm, tmp_path):
    from tvm import rpc

    path = models.build_kernels(tmp_path, ".o")
    session = rpc.connect(*farm.server(env={"PATH": str(tmp_path / "empty"), "CXX": "", "CC": ""}).address)
    session.upload(str(path))
    with pytest.raises(error(), match="no compiler"):
        session.load_module(path.name)


def test_f04_a_library_of_another_machine_is_named(session, probe):
    data = bytearray(pathlib.Path(probe).read_bytes())
    machine = struct.unpack_from("<H", data, 18)[0]
    struct.pack_into("<H", data, 18, 183 if machine != 183 else 62)
    session.upload(data, "foreign.so")
    with pytest.raises(error(), match=r"(?is)(aarch64|x86-64).*(aarch64|x86-64)"):
        session.load_module("foreign.so")
    assert session.get_function("ffi.Shape")


def test_f04_an_unresolved_symbol_is_named(session, tmp_path):
    source = tmp_path / "needs.c"
    source.write_text("int nobody_has_this(void);\nint __tvm_ffi_f(void* s, const void* a, int n, void* r) "
                      "{ return nobody_has_this(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "needs.so", source], check=True)
    session.upload(str(tmp_path / "needs.so"))
    with pytest.raises(error(), match="nobody_has_this"):
        session.load_module("needs.so")
    assert session.get_function("ffi.Shape")


def test_f05_a_library_uploaded_again_is_the_new_code_and_the_old_lives_on(session, probe, probe2):
    session.upload(str(probe), "same.so")
    old = session.load_module("same.so")
    assert old["ver"]() == 1
    session.upload(str(probe2), "same.so")
    new = session.load_module("same.so")
    assert new["ver"]() == 2
    assert old["ver"]() == 1
    session.remove("same.so")
    assert (old["noargs"](), new["noargs"]()) == (42, 42)


def tar_with(member, link=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo(member)
        if link is None:
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
        else:
            info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
    return bytearray(out.getvalue())


@pytest.mark.parametrize("path", ["../x", "a/../../x", "{outside}", "/etc/outpost-test", "..", "."])
def test_f06_an_upload_stays_in_the_folder(session, tmp_path, path):
    target = path.format(outside=tmp_path / "x")
    with pytest.raises(error()):
        session.upload(bytearray(b"data"), target)
    assert not (tmp_path / "x").exists()
    assert session.get_function("ffi.Shape")


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd"])
def test_f06_a_download_stays_in_the_folder(session, path):
    with pytest.raises(error()):
        session.download(path)
    with pytest.raises(error()):
        session.download_linked_module(path + ".so")


def test_f06_a_library_by_an_absolute_path_is_refused(session, probe):
    with pytest.raises(error()):
        session.load_module(str(probe))


@pytest.mark.parametrize("member,link", [("../evil.o", None), ("/tmp/evil.o", None), ("a/../../evil.o", None),
                                         ("evil.o", "/etc/passwd"), ("evil.o", "../../x")])
def test_f06_an_archive_stays_in_the_folder(session, member, link):
    session.upload(tar_with(member, link), "evil.tar")
    with pytest.raises(error()):
        session.load_module("evil.tar")
    assert not pathlib.Path("/tmp/evil.o").exists()
    assert session.get_function("ffi.Shape")


def test_f06_the_old_behaviour_has_a_switch(farm, tmp_path, probe):
    from tvm import rpc

    session = rpc.connect(*farm.server("--unconfined-paths").address)
    session.upload(bytearray(b"data"), str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"data"
    assert session.load_module(str(probe))["noargs"]() == 42


def test_f07_an_unusable_work_folder_is_named_at_the_start(farm, tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", pathlib.Path("/proc")):
        ended = farm.run(peers.needed("rpc_server"), "--host", "127.0.0.1", "--port", "0", "--work-dir", folder)
        assert ended.wait() != 0
        assert str(folder) in ended.text()


def test_a_download_that_fails_leaves_the_server_well(board, session, next_client_ok):
    with wire.Raw(board.address) as waiting:
        session.upload(bytearray(20_000_000), "large.bin")
        del session
        assert waiting.hello("client:lab")[0] == wire.SUCCESS
        waiting.init()
        waiting.call_named("tvm.rpc.server.upload", "large.bin", bytes(20_000_000))
        download = waiting.get("tvm.rpc.server.download")
        waiting.frame(wire.CALL_FUNC, struct.pack("<Q", download) + wire.pack("large.bin"))
        waiting.receive(1000)
        waiting.reset()
    next_client_ok(board, "client:lab")
