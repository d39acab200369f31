"""field-reports.md section 1: a bad kernel, client or time limit costs one session and never the server."""

import os
import pathlib
import re
import signal
import socket
import struct
import time

import pytest

import peers
import wire

TIMEOUT_TEXT = 'RPCSessionTimeoutError: Your {}s session has expired, try to increase the "session_timeout" value.'


def open_probe(server, probe, key="client:", timeout=10.0):
    """A session with the probe loaded: (connection, function by name)."""
    raw = wire.session(server.address, key, timeout)
    module = raw.load(pathlib.Path(probe).read_bytes())
    return raw, lambda name: raw.member(module, name)


def session_pids(server):
    """The workers of running sessions, as the log names them."""
    server.wait_for("session started")
    ended = set(re.findall(r"session ended session=(\d+)", server.text()))
    return [int(pid) for number, pid in re.findall(r"session started session=(\d+) .* worker=(\d+)", server.text())
            if number not in ended]


def folders(server):
    root = re.search(r"work_dir='([^']+)'", server.text())[1]
    return [p for p in pathlib.Path(root).iterdir() if p.is_dir() and any(p.iterdir())]


DEATHS = [("crash", "signal 11 (SIGSEGV"), ("abort_", "signal 6 (SIGABRT"), ("exit7", "exited with code 7"),
          ("exit0", "exited with code 0")]


@pytest.mark.parametrize("name, cause", DEATHS, ids=[d[0] for d in DEATHS])
def test_S01_S02_a_dying_worker_is_named_and_the_next_client_is_served(server, probe, next_client_ok, name, cause):
    raw, member = open_probe(server, probe)
    began = time.monotonic()
    with pytest.raises(wire.RemoteError, match=re.escape(cause)):
        raw.call(member(name))
    assert time.monotonic() - began < 2.0
    assert raw.at_end()
    next_client_ok(server)
    line = server.wait_for(r"session ended session=1 .*")[0]
    assert cause in line and "peer=127.0.0.1:" in line and "seconds=" in line


def test_S01_closed_descriptors_cost_one_session(server, probe, next_client_ok):
    raw, member = open_probe(server, probe)
    with pytest.raises((wire.RemoteError, wire.Closed)):
        raw.call(member("closefds"))
    next_client_ok(server)


@pytest.mark.parametrize("name, cause", DEATHS[:1], ids=["crash"])
def test_S01_the_tracker_shows_the_board_free_again(farm, tracker, probe, name, cause):
    from tracker_wire import RawTracker, REQUEST, SUMMARY

    server = farm.server(key="pi", tracker=tracker)
    server.wait_for("registered tracker=")
    with RawTracker(tracker.address) as asking:
        host, port, match_key = asking.talk([REQUEST, "pi", "", 1])[1]
        raw, member = open_probe(server, probe, f"client:{match_key}")
        with pytest.raises(wire.RemoteError):
            raw.call(member(name))
        peers.until(lambda: asking.talk([SUMMARY])[1]["queue_info"]["pi"]["free"] == 1, 3.0)


@pytest.mark.parametrize("limit", [2, 0.5])
def test_S03_a_time_limit_ends_a_call_with_its_own_text(server, probe, next_client_ok, limit):
    raw, member = open_probe(server, probe, f"client: -timeout={limit}")
    sleep = member("sleep_ms")
    began = time.monotonic()
    with pytest.raises(wire.RemoteError) as caught:
        raw.call(sleep, 8000)
    assert limit - 0.5 <= time.monotonic() - began <= limit + 0.5
    assert str(caught.value) == TIMEOUT_TEXT.format(float(limit))
    next_client_ok(server)


def test_S03_an_idle_client_reads_the_text_on_its_next_request(server, probe):
    raw, member = open_probe(server, probe, "client: -timeout=0.5")
    handle = member("noargs")
    server.wait_for("session ended session=1 .*timed out")
    with pytest.raises(wire.RemoteError) as caught:
        raw.call(handle)
    assert str(caught.value) == TIMEOUT_TEXT.format(0.5)


def test_S03_the_stock_client_knows_the_error(server, probe):
    import tvm
    from tvm import rpc

    session = rpc.connect(*server.address, session_timeout=1)
    session.upload(str(probe))
    hang = session.load_module("probe1.so")["sleep_ms"]
    with pytest.raises(tvm.error.RPCSessionTimeoutError, match="Your 1.0s session has expired"):
        hang(8000)


def test_S03_a_limit_passes_in_the_middle_of_an_upload_and_the_text_is_read(server):
    with wire.session(server.address, "client: -timeout=0.5") as raw:
        upload = raw.get("tvm.rpc.server.upload")
        size = 64 << 20
        head = struct.pack("<Q", upload) + struct.pack("<i", 2) + wire.pack_value("big.bin")
        body = head + struct.pack("<iIQ", wire.BYTES, wire.BYTES, size)
        raw.send(struct.pack("<Qi", 4 + len(body) + size, wire.CALL_FUNC) + body)
        raw.send(bytes(1 << 20))
        server.wait_for("session ended session=1 .*timed out")
        for _ in range(63):
            raw.send(bytes(1 << 20))
        with pytest.raises(wire.RemoteError) as caught:
            raw.answer()
        assert str(caught.value) == TIMEOUT_TEXT.format(0.5)


@pytest.mark.parametrize("seconds", ["0", "-1", "0.0"])
def test_S03_a_limit_of_nothing_expires_at_once(server, seconds):
    with wire.Raw(server.address) as raw:
        assert raw.hello(f"client: -timeout={seconds}")[0] == wire.SUCCESS
        with pytest.raises(wire.RemoteError, match="session has expired"):
            raw.answer()


@pytest.mark.parametrize("name", ["ignore_term", "spin"])
def test_S04_a_hung_job_is_cut(server, probe, next_client_ok, name):
    raw, member = open_probe(server, probe, "client: -timeout=2")
    pids = session_pids(server)
    assert len(pids) == 1
    began = time.monotonic()
    with pytest.raises(wire.RemoteError, match="Your 2.0s session has expired"):
        raw.call(member(name))
    assert time.monotonic() - began < 2.5
    next_client_ok(server)
    peers.until(lambda: not any(peers.alive(p) for p in pids), 2.0)


def test_S04_children_of_a_session_go_with_it(server, probe, next_client_ok):
    raw, member = open_probe(server, probe)
    children = [raw.call(member("child"))[1] for _ in range(20)]
    assert all(peers.alive(c) for c in children)
    raw.frame(wire.SHUTDOWN)
    peers.until(lambda: not any(peers.alive(c) for c in children), 2.0)
    assert "killed=20" in server.wait_for("session ended session=1 .*")[0]
    next_client_ok(server)


def test_S07_cleaning_a_folder_that_is_not_there_costs_nothing(server, probe):
    for _ in range(20):
        began = time.monotonic()
        raw, member = open_probe(server, probe)
        assert raw.call(member("noargs"))[1] == 42
        raw.call_named("tvm.rpc.server.remove", "")
        raw.call_named("tvm.rpc.server.remove", "nope")
        raw.frame(wire.SHUTDOWN)
        raw.close()
        assert time.monotonic() - began < 1.0
    server.wait_for("session ended session=20 .*reason='shutdown'")
    assert session_pids(server) == [] and folders(server) == []


def test_S08_a_client_killed_during_a_call_frees_the_board(farm, server, probe, next_client_ok):
    client = farm.python(
        "import sys, threading; from tvm import rpc; s = rpc.connect(sys.argv[1], int(sys.argv[2]));"
        "s.upload(sys.argv[3]); f = s.load_module('probe1.so')['sleep_ms'];"
        "threading.Timer(0.5, print, ['calling'], {'flush': True}).start(); f(20000)",
        server.host, server.port, probe)
    client.wait_for("calling", 60.0)
    pids = session_pids(server)
    client.kill()
    next_client_ok(server)
    peers.until(lambda: not any(peers.alive(p) for p in pids), 2.0)
    server.wait_for("session ended session=1 .*reason='client vanished'")


def test_S08_a_reset_connection_frees_the_board(server, probe, next_client_ok):
    raw, member = open_probe(server, probe)
    sleep = member("sleep_ms")
    raw.frame(wire.CALL_FUNC, struct.pack("<Q", sleep) + wire.pack(20000))
    raw.reset()
    next_client_ok(server)


def test_S08_requests_sent_before_a_close_are_still_served(server):
    with wire.session(server.address) as raw:
        upload = raw.get("tvm.rpc.server.upload")
        for i in range(50):
            raw.frame(wire.CALL_FUNC, struct.pack("<Q", upload) + wire.pack(f"f{i}", bytes(100000)))
        raw.frame(wire.SHUTDOWN)
        raw.socket.shutdown(socket.SHUT_WR)
        for _ in range(50):
            raw.answer()
        assert raw.at_end()
    line = server.wait_for("session ended session=1 .*")[0]
    assert "reason='shutdown'" in line and "calls=50" in line


def test_S09_shutdown_closes_though_the_client_keeps_its_socket(server, next_client_ok):
    with wire.session(server.address) as raw:
        raw.frame(wire.SHUTDOWN)
        assert raw.at_end()
        next_client_ok(server, limit=1.0)


def odd_hello(length, data=b""):
    return struct.pack("<ii", wire.MAGIC, length) + data


ODD = {"http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "length 0": odd_hello(0), "length -1": odd_hello(-1),
       "huge": odd_hello(2**31 - 1), "not utf-8": odd_hello(4, b"\xff\xfe\xfd\xfc"), "blanks": odd_hello(3, b"   "),
       "bad timeout": odd_hello(19, b"client: -timeout=abc"[:19])}


@pytest.mark.parametrize("name", ODD)
def test_S12_odd_handshakes_are_closed_and_logged(server, next_client_ok, name):
    with wire.Raw(server.address) as raw:
        raw.send(ODD[name])
        assert raw.at_end()
    line = server.wait_for("handshake refused peer=127.0.0.1:.* reason=")[0]
    if name == "http":
        line = server.wait_for("handshake refused .*")[0]
        assert "this looks like HTTP" in line
    next_client_ok(server)


def test_S12_a_wrong_key_is_refused_with_no_match(farm, next_client_ok):
    server = farm.server(key="right")
    with wire.Raw(server.address) as raw:
        assert raw.hello("client:wrong")[0] == wire.MISMATCH
        assert raw.at_end()
    assert "key='wrong'" in server.wait_for("client refused .*")[0]
    next_client_ok(server, "client:right")


def test_S12_silent_clients_block_nobody(server, next_client_ok):
    silent = [socket.create_connection(server.address) for _ in range(20)]
    half = [socket.create_connection(server.address) for _ in range(20)]
    for s in half:
        s.send(odd_hello(100, b"client:"))
    next_client_ok(server)
    for s in silent + half:
        s.close()


def test_S12_a_handshake_has_a_deadline(farm):
    server = farm.server("--handshake-timeout", "0.3")
    with wire.Raw(server.address) as raw:
        raw.send(odd_hello(100, b"cli"))
        assert raw.at_end()
    server.wait_for("no whole handshake within 300 ms")


@pytest.mark.parametrize("step", [1, 3])
def test_a_handshake_may_come_in_pieces(server, step):
    with wire.Raw(server.address) as raw:
        data = odd_hello(7, b"client:")
        for i in range(0, len(data), step):
            raw.send(data[i:i + step])
        assert struct.unpack("<i", raw.receive(4))[0] == wire.SUCCESS


def test_a_client_may_send_its_first_request_with_the_handshake(server):
    with wire.Raw(server.address) as raw:
        init = struct.pack("<Q", 5) + b"0.8.0" + wire.pack()
        raw.send(odd_hello(7, b"client:") + struct.pack("<Qi", 4 + len(init), wire.INIT_SERVER) + init)
        assert struct.unpack("<ii", raw.receive(8)) == (wire.SUCCESS, len("server:"))
        raw.receive(len("server:"))
        assert raw.answer() == [None]


def test_S14_the_next_port_is_taken_when_the_first_is_busy(farm):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        server = farm.server("--port-end", port + 5, port=port)
        assert port < server.port <= port + 5
        alone = farm.run(peers.needed("rpc_server"), "--host", "127.0.0.1", "--port", port, "--port-end", port)
        alone.wait_for(f"port {port}: .*in use")
        assert alone.wait() == 1


def test_S15_a_second_server_on_one_port_ends_with_a_message(farm, next_client_ok):
    server = farm.server()
    second = farm.run(peers.needed("rpc_server"), "--host", "127.0.0.1", "--port", server.port,
                      "--port-end", server.port)
    second.wait_for(f"port {server.port}: .*in use")
    assert second.wait() == 1
    next_client_ok(server)


def test_S16_log_lines_say_when_who_and_why(server):
    with wire.session(server.address, "client: -timeout=60") as raw:
        raw.frame(wire.SHUTDOWN)
        raw.at_end()
    server.wait_for("session ended")
    start, end = (next(line for line in server.lines if word in line) for word in ("session started", "session ended"))
    for line in (start, end):
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\S* info rpc: session ", line), line
        assert "peer=127.0.0.1:" in line and "key=''" in line and "limit=60.0" in line
    assert re.search(r"seconds=\d+\.\d+ requests=\d+ calls=0 in_bytes=\d+ out_bytes=\d+ .*reason='shutdown'", end)


def test_S17_a_tuning_run_outlives_every_second_job(farm, tracker, probe):
    """50 jobs, every second one crashes: 25 answers, 25 errors, nothing pending at the end."""
    from tracker_wire import RawTracker, REQUEST, SUMMARY

    server = farm.server(key="pi", tracker=tracker)
    server.wait_for("registered tracker=")
    began, good, bad = time.monotonic(), 0, 0
    with RawTracker(tracker.address) as asking:
        for i in range(50):
            host, port, match_key = asking.talk([REQUEST, "pi", "", 1])[1]
            raw, member = open_probe(server, probe, f"client:{match_key} -timeout=5")
            try:
                good += raw.call(member("crash" if i % 2 else "noargs"))[1] == 42
            except wire.RemoteError:
                bad += 1
            raw.close()
        summary = asking.talk([SUMMARY])[1]
    assert (good, bad) == (25, 25)
    assert time.monotonic() - began < 60
    assert summary["queue_info"]["pi"]["pending"] == 0


def test_what_a_session_prints_is_logged_with_its_number(server, probe):
    raw, member = open_probe(server, probe)
    raw.call(member("print_"))
    assert server.wait_for("session output session=1 text='.+'")
    raw.frame(wire.SHUTDOWN)


def test_waiting_clients_are_served_in_order(server):
    first = wire.session(server.address)
    waiting = []
    for place in (1, 2, 3):
        raw = wire.Raw(server.address)
        raw.send(odd_hello(7, b"client:"))
        waiting.append(raw)
        server.wait_for(f"session waits session={place + 1} .*place={place} running=1 slots=1")
    for number, raw in enumerate(waiting, 2):
        (first if number == 2 else waiting[number - 3]).close()
        assert struct.unpack("<i", raw.receive(4))[0] == wire.SUCCESS
        server.wait_for(f"session started session={number} ")
        later = [w for w in waiting[number - 1:]]
        for w in later:
            w.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                w.socket.recv(1)
            w.socket.settimeout(10)


def test_a_client_that_leaves_the_line_gives_up_its_place(server):
    first = wire.session(server.address)
    second, third = wire.Raw(server.address), wire.Raw(server.address)
    second.send(odd_hello(7, b"client:"))
    server.wait_for("session waits session=2 ")
    third.send(odd_hello(7, b"client:"))
    server.wait_for("session waits session=3 .*place=2")
    second.close()
    server.wait_for("session left while waiting session=2")
    first.close()
    assert struct.unpack("<i", third.receive(4))[0] == wire.SUCCESS


def test_slots_serve_that_many_at_once(farm, probe):
    server = farm.server("--slots", "3")
    sessions = [open_probe(server, probe) for _ in range(3)]
    assert len({raw.call(member("getpid_"))[1] for raw, member in sessions}) == 3
    fourth = wire.Raw(server.address)
    fourth.send(odd_hello(7, b"client:"))
    server.wait_for("session waits session=4 .*place=1 running=3 slots=3")
    sessions[1][0].close()
    assert struct.unpack("<i", fourth.receive(4))[0] == wire.SUCCESS


def test_killing_the_zygote_ends_its_sessions_and_nothing_else(server, probe, next_client_ok):
    raw, member = open_probe(server, probe)
    child = raw.call(member("child"))[1]
    worker = session_pids(server)[0]
    state = pathlib.Path(f"/proc/{worker}/stat")
    peers.until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S")  # no answer is half sent
    zygote = int(state.read_text().rpartition(")")[2].split()[1])
    os.kill(zygote, signal.SIGKILL)
    with pytest.raises(wire.RemoteError, match="its parent process was killed"):
        raw.answer()
    next_client_ok(server)
    peers.until(lambda: not peers.alive(worker) and not peers.alive(child), 2.0)


def test_sigterm_lets_sessions_end_and_exits_with_0(server, probe):
    raw, member = open_probe(server, probe)
    server.signal(signal.SIGTERM)
    server.wait_for("stopping sessions=1")
    with pytest.raises(ConnectionError):
        wire.Raw(server.address)
    assert raw.call(member("noargs"))[1] == 42
    raw.frame(wire.SHUTDOWN)
    assert server.wait() == 0


def test_sigterm_ends_sessions_after_the_grace_time(farm, probe):
    server = farm.server("--grace", "0.3")
    raw, member = open_probe(server, probe)
    handle = member("ignore_term")
    server.signal(signal.SIGTERM)
    with pytest.raises(wire.RemoteError, match="the server is stopping"):
        raw.call(handle)
    raw.close()
    assert server.wait() == 0


def test_a_second_sigterm_ends_at_once(server, probe):
    raw, member = open_probe(server, probe)
    server.signal(signal.SIGTERM)
    server.wait_for("stopping sessions=1")
    server.signal(signal.SIGTERM)
    with pytest.raises(wire.RemoteError, match="the server is stopping"):
        raw.answer()
    raw.close()
    assert server.wait() == 0


def test_no_fork_serves_all_sessions_in_one_process(farm, probe, next_client_ok):
    server = farm.server("--no-fork")
    pids = set()
    for _ in range(2):
        raw, member = open_probe(server, probe)
        pids.add(raw.call(member("getpid_"))[1])
        raw.frame(wire.SHUTDOWN)
        raw.at_end()
    assert len(pids) == 1
    raw, member = open_probe(server, probe)
    with pytest.raises(wire.RemoteError, match="signal 11"):
        raw.call(member("crash"))
    next_client_ok(server)
