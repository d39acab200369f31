"""field-reports.md section 3, the server's side of a tracker link; and a soak."""

import os
import pathlib
import re
import signal
import socket

import pytest

import peers
import wire
from tracker_wire import RawTracker, REQUEST, SUMMARY


def take(address, key="pi"):
    """Takes a board from the tracker: ((host, port), match key)."""
    with RawTracker(address) as asking:
        host, port, match_key = asking.talk([REQUEST, key, "", 1])[1]
    return (host, port), match_key


@pytest.fixture(params=["ours", "stock"])
def any_tracker(request, farm):
    return farm.tracker() if request.param == "ours" else farm.stock_tracker()


def test_T03_the_log_names_tracker_and_address_and_the_summary_follows(farm, any_tracker):
    server = farm.server(key="pi", tracker=any_tracker)
    line = server.wait_for("registered tracker=.*")[0]
    assert f"tracker=127.0.0.1:{any_tracker.port}" in line and f"address=127.0.0.1:{server.port}" in line
    with RawTracker(any_tracker.address) as asking:
        peers.until(lambda: asking.summary()["server_info"], 2.0)
        assert asking.summary()["server_info"][0] == {"key": "server:pi", "addr": ["127.0.0.1", server.port]}
        server.kill()
        peers.until(lambda: not asking.summary()["server_info"], 1.0)


def test_T03_each_retry_is_logged_until_the_tracker_is_there(farm):
    port = peers.free_port()
    server = farm.server("--tracker", f"127.0.0.1:{port}", key="pi")
    server.wait_for(f"warning rpc: tracker cannot be reached tracker=127.0.0.1:{port} reason='Connection refused'")
    server.wait_for("tracker cannot be reached .*tries=2 retry_ms=")
    tracker = farm.tracker(port=port)
    server.wait_for("registered tracker=", 10.0)
    with RawTracker(tracker.address) as asking:
        assert asking.queue("pi")["free"] == 1


def test_a_match_key_serves_one_client(farm, any_tracker, next_client_ok):
    server = farm.server(key="pi", tracker=any_tracker)
    server.wait_for("registered tracker=")
    _, match_key = take(any_tracker.address)
    assert re.fullmatch(r"pi:[0-9a-f]{32}", match_key)
    next_client_ok(server, f"client:{match_key}")
    with wire.Raw(server.address) as raw:
        assert raw.hello(f"client:{match_key}")[0] == wire.MISMATCH
    with wire.Raw(server.address) as raw:
        assert raw.hello("client:pi")[0] == wire.MISMATCH
    _, fresh = take(any_tracker.address)
    next_client_ok(server, f"client:{fresh}")


def test_T05_a_key_that_nobody_uses_is_renewed_with_a_warning_that_names_the_address(farm, tracker, next_client_ok):
    server = farm.server("--custom-addr", "127.0.0.9", key="pi", tracker=tracker)
    server.wait_for("registered tracker=")
    address, match_key = take(tracker.address)
    assert address == ("127.0.0.9", server.port)
    line = server.wait_for("warning rpc: .*never came.*", 10.0)[0]
    assert f"address=127.0.0.9:{server.port}" in line
    with wire.Raw(server.address) as raw:
        assert raw.hello(f"client:{match_key}")[0] == wire.MISMATCH
    next_client_ok(server, f"client:{take(tracker.address)[1]}")


def test_T07_two_servers_of_one_key_serve_two_clients_and_a_third_waits(farm, tracker, probe):
    servers = [farm.server(key="pi", tracker=tracker) for _ in range(2)]
    for server in servers:
        server.wait_for("registered tracker=")
    pids, open_sessions = set(), []
    for _ in range(2):
        address, match_key = take(tracker.address)
        raw = wire.session(address, f"client:{match_key}")
        open_sessions.append(raw)
        pids.add(raw.call(raw.member(raw.load(pathlib.Path(probe).read_bytes()), "getpid_"))[1])
    assert len(pids) == 2
    with RawTracker(tracker.address) as third:
        third.post([REQUEST, "pi", "", 1])
        with RawTracker(tracker.address) as asking:
            peers.until(lambda: asking.queue("pi") == {"free": 0, "pending": 1}, 2.0)
        open_sessions[0].close()
        assert third.reply()[0] == 0


def test_slots_are_offered_one_key_each(farm, any_tracker):
    server = farm.server("--slots", "3", key="pi", tracker=any_tracker)
    server.wait_for("registered tracker=")
    with RawTracker(any_tracker.address) as asking:
        peers.until(lambda: asking.queue("pi")["free"] == 3)
        address, match_key = take(any_tracker.address)
        raw = wire.session(address, f"client:{match_key}")
        assert asking.queue("pi")["free"] == 2
        raw.close()
        peers.until(lambda: asking.queue("pi")["free"] == 3)


def test_T13_the_board_returns_after_an_outage_and_its_session_is_not_touched(farm, any_tracker, probe):
    server = farm.server(key="pi", tracker=any_tracker)
    server.wait_for("registered tracker=")
    address, match_key = take(any_tracker.address)
    raw = wire.session(address, f"client:{match_key}")
    noargs = raw.member(raw.load(pathlib.Path(probe).read_bytes()), "noargs")
    # the stock one has a child that listens
    peers.kill_all([any_tracker.pid, *peers.descendants(any_tracker.pid)])
    server.wait_for("tracker lost tracker=")
    server.wait_for("tracker cannot be reached .*tries=4 ", 20.0)
    assert raw.call(noargs)[1] == 42
    seen = len(server.lines)
    again = farm.tracker(port=any_tracker.port)
    server.wait_for("registered tracker=.* offered=0", 10.0, start=seen)
    assert raw.call(noargs)[1] == 42
    raw.close()
    with RawTracker(again.address) as asking:
        peers.until(lambda: asking.queue("pi")["free"] == 1, 3.0)


def test_T13_a_tracker_that_accepts_and_closes_is_not_hammered(farm):
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        dead.listen()
        dead.settimeout(0.2)
        server = farm.server("--tracker", f"127.0.0.1:{dead.getsockname()[1]}", key="pi")
        connects, rounds = 0, 0
        while rounds < 15:  # 3 s without a connection
            try:
                dead.accept()[0].close()
                connects += 1
            except TimeoutError:
                rounds += 1
        assert connects < 8
        assert "tracker cannot be reached" in server.text()


def test_sigterm_withdraws_the_board_at_once_while_a_session_ends(farm, any_tracker):
    server = farm.server("--slots", "2", key="pi", tracker=any_tracker)
    server.wait_for("registered tracker=")
    address, match_key = take(any_tracker.address)
    with wire.session(address, f"client:{match_key}") as raw:
        server.signal(signal.SIGTERM)
        with RawTracker(any_tracker.address) as asking:
            peers.until(lambda: asking.queue("pi")["free"] == 0, 2.0)
        raw.frame(wire.SHUTDOWN)
    assert server.wait() == 0


def test_the_stock_client_goes_through_tracker_and_server(farm, any_tracker, kernels):
    import numpy as np
    import tvm
    from tvm import rpc

    server = farm.server(key="pi", tracker=any_tracker)
    server.wait_for("registered tracker=")
    boards = rpc.connect_tracker(*any_tracker.address)
    for _ in range(2):
        session = boards.request("pi", session_timeout=30)
        session.upload(str(kernels))
        module = session.load_module("kernels.so")
        a = tvm.runtime.tensor(np.arange(4, dtype="float32"), session.cpu())
        b = tvm.runtime.empty((4,), "float32", session.cpu())
        module["add_one"](a, b)
        np.testing.assert_array_equal(b.numpy(), [1, 2, 3, 4])
        del a, b, module, session


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_soak_500_sessions_with_every_second_worker_killed_leak_nothing(farm):
    server = farm.server("--slots", "2")
    root = pathlib.Path(re.search(r"work_dir='([^']+)'", server.text())[1])
    peers.until(lambda: len(peers.descendants(server.pid)) == 5)  # zygote and four spares
    zygote = next(p for p in peers.descendants(server.pid) if len(peers.descendants(p)) == 4)
    before = open_files(server.pid), open_files(zygote)
    for number in range(1, 501):
        with wire.session(server.address) as raw:
            if number % 2:
                worker = int(server.wait_for(f"session started session={number} .* worker=(\\d+)", start=0)[1])
                os.kill(worker, signal.SIGKILL)
                with pytest.raises((wire.RemoteError, wire.Closed)):
                    raw.answer()
            else:
                raw.frame(wire.SHUTDOWN)
                assert raw.at_end()
    server.wait_for("session ended session=500 ")
    ends = [line for line in server.lines if "session ended" in line]
    assert len(ends) == 500 and sum("signal 9 (SIGKILL" in line for line in ends) == 250
    peers.until(lambda: len(peers.descendants(server.pid)) == 5)
    peers.until(lambda: (open_files(server.pid), open_files(zygote)) == before)
    folders = [p for p in root.iterdir() if p.is_dir()]
    assert len([p for p in folders if p.name.startswith("s")]) == 4  # of the spares; the others wait for new use
    assert not any(any(p.iterdir()) for p in folders)
