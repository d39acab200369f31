"""The command line `outpost` against stock peers and ours, in every pairing of tracker and server."""

import json
import os
import pathlib
import pty
import subprocess

import pytest

import models
import peers
import tracker_wire

numpy = pytest.importorskip("numpy")
LIMIT = 60.0


def outpost(*arguments, env=None, cwd=None, limit=LIMIT):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OUTPOST_", "TVM_TRACKER"))}
    return subprocess.run([str(peers.needed("outpost")), *[str(a) for a in arguments]], capture_output=True, text=True,
                          timeout=limit, env={**clean, **(env or {})}, cwd=cwd)


def works(*arguments, **more):
    done = outpost(*arguments, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Lab:
    """A tracker and a server with key `board`, each stock or ours."""

    def __init__(self, farm, tracker, server):
        self.ours = server == "ours"
        self.tracker = farm.tracker() if tracker == "ours" else farm.stock_tracker()
        start = farm.server if self.ours else farm.stock_server
        self.server = start(key="board", tracker=self.tracker)
        peers.until(lambda: json.loads(works("devices", "--json", *self.at))["queues"], 30.0, 0.1)

    @property
    def at(self):
        return "--tracker", self.tracker.at

    @property
    def board(self):
        return *self.at, "-k", "board", "--wait", "30"


@pytest.fixture(scope="module", params=["stock-stock", "stock-ours", "ours-stock", "ours-ours"])
def lab(request):
    farm = peers.Farm()
    yield Lab(farm, *request.param.split("-"))
    farm.close()


@pytest.fixture
def board(farm):
    """Our server alone, without a tracker."""
    return farm.server(key="board")


def test_devices_as_table_and_json(lab):
    text = works("devices", *lab.at)
    assert text.startswith(f"Tracker address {lab.tracker.host}:{lab.tracker.port}\n\nServer List\n")
    assert f"{lab.server.host}:{lab.server.port}".ljust(25) + "server:board\n" in text
    seen = json.loads(works("devices", *lab.at, "--json"))
    assert seen["servers"][0]["key"] == "server:board"
    assert [q["key"] for q in seen["queues"]] == ["board"]


def test_the_table_is_the_stock_clients(lab):
    from tvm import rpc

    session = rpc.connect_tracker(lab.tracker.host, lab.tracker.port)
    peers.until(lambda: session.summary()["queue_info"]["board"]["free"] == 1, 30.0, 0.1)
    assert works("devices", *lab.at).partition("\n\n")[2].startswith(session.text_summary())


def test_t17_t02_devices_say_who_holds_a_board_and_which_key_nobody_has(farm):
    from tvm import rpc

    tracker = farm.tracker()
    server = farm.server(key="board", tracker=tracker)
    at = ["--tracker", tracker.at]
    peers.until(lambda: "free" in works("devices", *at).partition("Boards")[2], 30.0, 0.1)
    session = rpc.connect_tracker(tracker.host, tracker.port)
    held = session.request("board")
    board = json.loads(works("devices", *at, "--json"))["boards"][0]
    assert (board["address"], board["key"], board["state"]) == (f"{server.host}:{server.port}", "board", "busy")
    assert board["holder"].startswith("127.0.0.1") and board["state_seconds"] >= 0
    assert "busy" in works("devices", *at).partition("Boards")[2]
    waiter = tracker_wire.RawTracker((tracker.host, tracker.port))
    waiter.post([tracker_wire.REQUEST, "typo", "", 1])
    peers.until(lambda: "no board has the key 'typo', 1 waiting" in works("devices", *at), 10.0, 0.1)
    del held


def test_ping(lab):
    assert works("ping", *lab.at).startswith("tracker: connected in ")
    assert works("ping", *lab.board, "-c", "3").startswith("server:board: connected in ")


def test_files_there_and_back(lab, tmp_path):
    data = os.urandom(1_000_000)
    (tmp_path / "a.bin").write_bytes(data)
    works("upload", *lab.board, tmp_path / "a.bin", "+", "download", "a.bin", tmp_path / "b.bin", "+", "rm", "a.bin")
    assert (tmp_path / "b.bin").read_bytes() == data


def test_run_with_files_and_random_inputs(lab, kernels, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.arange(4, dtype="float32"))
    works("run", *lab.board, kernels, "add_one", "-i", tmp_path / "x.npy", "-o", f"{tmp_path}/y.npy=float32[4]")
    assert numpy.load(tmp_path / "y.npy").tolist() == [1, 2, 3, 4]
    square = "float32[128,128]"
    works("run", *lab.board, kernels, "add", "-i", square, "-i", square, "-o", f"{tmp_path}/z.npy={square}")
    assert 0.9 < numpy.load(tmp_path / "z.npy").mean() < 1.1


@pytest.mark.parametrize("suffix", [".tar", ".o"])
def test_run_links_on_the_board(lab, artefacts, tmp_path, suffix):
    numpy.save(tmp_path / "x.npy", numpy.arange(4, dtype="float32"))
    works("run", *lab.board, models.build_kernels(artefacts, suffix), "add_one", "-i", tmp_path / "x.npy", "-o",
          f"{tmp_path}/y.npy=float32[4]")
    assert numpy.load(tmp_path / "y.npy").tolist() == [1, 2, 3, 4]


def test_time(lab, kernels):
    square = "float32[128,128]"
    arguments = (*lab.board, kernels, "add", "-i", square, "-i", square, "-o", "=" + square, "-n", "3", "-r", "4")
    seen = json.loads(works("time", *arguments, "--json"))
    assert len(seen["seconds"]) == 4 and seen["min"] <= seen["median"] <= seen["max"]
    head, row = works("time", *arguments).splitlines()
    assert head.split("(ms)")[0].strip() == "mean" and len(row.split()) == 5


def test_link_brings_the_library_back(lab, artefacts, tmp_path):
    works("link", *lab.board, models.build_kernels(artefacts, ".tar"), tmp_path / "linked.so")
    assert (tmp_path / "linked.so").read_bytes()[:4] == b"\x7fELF"


def test_ls(board, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    text = works("upload", "-a", board.at, "-k", "board", tmp_path / "a.txt", "+", "ls")
    assert "a.txt" in text


def test_download_to_standard_output(board, tmp_path):
    (tmp_path / "a.txt").write_text("words")
    text = works("upload", "-a", board.at, "-k", "board", tmp_path / "a.txt", "+", "download", "a.txt", "-")
    assert text == "words"


def test_a_failed_download_leaves_no_file(board, tmp_path):
    done = outpost("download", "-a", board.at, "-k", "board", "absent.txt", tmp_path / "absent.txt")
    assert done.returncode == 1 and done.stderr.startswith("outpost: ")
    assert list(tmp_path.iterdir()) == []


def test_a_lost_server_during_a_download_leaves_no_file(farm, tmp_path):
    board = farm.server(key="board")
    with open(tmp_path / "large.bin", "wb") as f:
        f.truncate(600_000_000)
    client = subprocess.Popen(
        [str(peers.needed("outpost")), "upload", "-a", board.at, "-k", "board", str(tmp_path / "large.bin"), "+",
         "download", "large.bin", str(tmp_path / "back.bin")], stderr=subprocess.PIPE, text=True)
    peers.until(lambda: list(tmp_path.glob("back.bin.part*")), 60.0)
    peers.kill_all([*peers.descendants(board.pid), board.pid])
    _, error = client.communicate(timeout=LIMIT)
    assert client.returncode == 3, error
    assert [p.name for p in tmp_path.iterdir()] == ["large.bin"]


def test_addresses_from_the_environment(farm):
    tracker = farm.tracker()
    for env in ({"OUTPOST_TRACKER": tracker.at},
                {"TVM_TRACKER_HOST": tracker.host, "TVM_TRACKER_PORT": str(tracker.port)}):
        assert works("devices", env=env).startswith(f"Tracker address {tracker.host}:{tracker.port}\n")


def test_waiting_for_a_board_that_nobody_has(farm):
    tracker = farm.tracker()
    done = outpost("ls", "--tracker", tracker.at, "-k", "typo", "--wait", "0.3")
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        "outpost: waiting for a device with key 'typo': the tracker lists no server with it",
        "outpost: no device with key 'typo' became free within 300 ms"]


@pytest.mark.parametrize("arguments, code, text", [
    (["lss"], 2, "outpost: unknown command 'lss', did you mean 'ls'?"),
    (["ls", "--kye", "k"], 2, "outpost: unknown option '--kye', did you mean '--key'?"),
    (["ls"], 2, "outpost: name a device with --key, or a server with --address"),
    (["ls", "-a", "nowhere"], 2, "outpost: 'nowhere' is no address such as 10.0.0.4:9090"),
    (["run", "-a", "h:1", "x.so", "f", "-i", "y.foo"], 2,
     "outpost: 'y.foo' is no input: expected file.npy, a tensor such as float32[16,16], a number or text:..."),
    (["ls", "-a", "127.0.0.1:1"], 3, "outpost: cannot connect to 127.0.0.1:1: Connection refused"),
])
def test_what_goes_wrong_is_one_line_and_an_exit_code(arguments, code, text):
    done = outpost(*arguments)
    assert (done.returncode, done.stderr) == (code, text + "\n")


def test_help_has_examples():
    assert "outpost upload -k pi4 net.so + ls" in works("--help")
    assert "Example: outpost time -k pi4" in works("time", "--help")


def test_a_progress_bar_on_a_terminal_only(board, tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(3_000_000))
    command = ["upload", "-a", board.at, "-k", "board", tmp_path / "a.bin"]
    assert outpost(*command).stderr == ""
    terminal, end = pty.openpty()
    subprocess.run([str(peers.needed("outpost")), *map(str, command)], stderr=end, check=True, timeout=LIMIT)
    os.close(end)
    assert b"100%  3.0 MB of 3.0 MB" in os.read(terminal, 65536)
    os.close(terminal)


def test_a_large_upload_raises_no_memory(board, tmp_path):
    with open(tmp_path / "large.bin", "wb") as f:
        f.truncate(1 << 30)
    command = [peers.needed("outpost"), "upload", "-a", board.at, "-k", "board", tmp_path / "large.bin", "+",
               "download", "large.bin", tmp_path / "b.bin"]
    with subprocess.Popen([str(c) for c in command]) as client:
        peak = 0
        while client.poll() is None:
            status = pathlib.Path(f"/proc/{client.pid}/status")
            lines = status.read_text().splitlines() if status.exists() else []
            peak = max([peak] + [int(line.split()[1]) for line in lines if line.startswith("RssAnon")])
    assert client.returncode == 0
    assert peak < 8_192, f"{peak} kB"
