"""Our tracker between stock clients and stock servers, as real processes."""

import json
import signal
import subprocess
import sys
import threading

import pytest

import peers
import wire
from tracker_wire import PUT, REQUEST, UPDATE_INFO, RawTracker


@pytest.fixture(scope="module")
def lab():
    """Our tracker with two stock servers of one key."""
    farm = peers.Farm()
    tracker = farm.tracker()
    servers = [farm.stock_server("board", tracker) for _ in range(2)]
    with RawTracker(tracker.address) as watch:
        peers.until(lambda: watch.queue("board")["free"] == 2, limit=10.0)
    yield tracker, servers
    farm.close()


def connect(tracker):
    from tvm import rpc

    return rpc.connect_tracker(*tracker.address)


def free(tracker, key="board"):
    with RawTracker(tracker.address) as raw:
        return raw.queue(key)["free"]


def load_probe(session, probe):
    session.upload(str(probe), "probe.so")
    return session.load_module("probe.so")


def stop_all(process, number):
    """The signal goes to the process and everything below it."""
    for pid in [*peers.descendants(process.pid), process.pid]:
        subprocess.run(["kill", f"-{int(number)}", str(pid)], check=True)


def test_a_stock_client_reads_summary_and_table(lab):
    tracker, servers = lab
    session = connect(tracker)
    summary = session.summary()
    assert summary["queue_info"]["board"] == {"free": 2, "pending": 0}
    assert sorted(i["addr"][1] for i in summary["server_info"]) == sorted(s.port for s in servers)
    table = session.text_summary()
    assert all(f"127.0.0.1:{s.port}" in table for s in servers)
    assert "board   2      2     0" in table


def test_the_stock_query_tool_prints_the_table(lab):
    tracker, servers = lab
    done = subprocess.run([sys.executable, "-m", "tvm.exec.query_rpc_tracker", "--host", "127.0.0.1",
                           "--port", str(tracker.port)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"127.0.0.1:{servers[0].port}" in done.stdout


def test_t07_two_boards_of_one_key_go_to_two_clients_and_the_third_waits(lab, probe):
    tracker, _ = lab
    first, second = connect(tracker).request("board"), connect(tracker).request("board")
    pids = {load_probe(s, probe)["getpid_"]() for s in (first, second)}
    assert len(pids) == 2
    got = []
    third = threading.Thread(target=lambda: got.append(connect(tracker).request("board")), daemon=True)
    third.start()
    with RawTracker(tracker.address) as watch:
        peers.until(lambda: watch.queue("board")["pending"] == 1)
        del first
        third.join(10)
        assert got and load_probe(got[0], probe)["noargs"]() == 42
        got.clear()
        del second
        peers.until(lambda: watch.queue("board") == {"free": 2, "pending": 0}, limit=10.0)


def test_t14_waiting_does_not_count_as_running(lab, probe):
    tracker, _ = lab
    done = []

    def job():
        session = connect(tracker).request("board", session_timeout=4)
        done.append(load_probe(session, probe)["sleep_ms"](1500))

    jobs = [threading.Thread(target=job) for _ in range(6)]  # three rounds on two boards: 4.5 s in all
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join(60)
    assert len(done) == 6
    peers.until(lambda: free(tracker) == 2, limit=10.0)


def test_a_key_that_is_taken_and_not_used_is_replaced(lab):
    tracker, servers = lab
    with RawTracker(tracker.address) as raw:
        taken = raw.talk([REQUEST, "board", "", 1])[1]
        assert taken[1] in [s.port for s in servers]
    peers.until(lambda: free(tracker) == 2, limit=15.0)


def test_a_stock_client_shares_the_queue_by_priority(lab):
    tracker, _ = lab
    order = []
    with RawTracker(tracker.address) as watch:
        held = [connect(tracker).request("board") for _ in range(2)]

        def ask(priority):
            session = connect(tracker).request("board", priority=priority)
            order.append(priority)
            session.get_function("runtime.GetDeviceAttr")

        asks = []
        for count, priority in enumerate((1, 9), 1):
            asks.append(threading.Thread(target=ask, args=(priority,)))
            asks[-1].start()
            peers.until(lambda n=count: watch.queue("board")["pending"] == n)
        held.pop()
        peers.until(lambda: order, limit=20.0)
        assert order[0] == 9
        held.clear()
        for thread in asks:
            thread.join(20)
        peers.until(lambda: watch.queue("board")["free"] == 2, limit=15.0)


def test_t03_a_server_shows_after_its_start_and_is_gone_after_its_death(farm, tracker):
    server = farm.stock_server("t03", tracker)
    with RawTracker(tracker.address) as watch:
        peers.until(lambda: watch.queue("t03")["free"] == 1, limit=10.0)
        assert [i["addr"] for i in watch.summary()["server_info"]] == [["127.0.0.1", server.port]]
        tracker.wait_for("server registered peer=127.0.0.1:[0-9]+ key='server:t03'")
        stop_all(server, signal.SIGKILL)
        peers.until(lambda: watch.queue("t03")["free"] == 0 and not watch.summary()["server_info"], limit=1.0)
    tracker.wait_for("server left peer=127.0.0.1:[0-9]+ key='server:t03'")


def test_t04_the_custom_address_is_shown_and_handed_out(farm, tracker):
    server = farm.stock_server("t04", tracker, arguments=["--custom-addr", "10.9.8.7"])
    with RawTracker(tracker.address) as watch:
        peers.until(lambda: watch.queue("t04")["free"] == 1, limit=10.0)
        assert watch.summary()["server_info"] == [{"key": "server:t04", "addr": ["10.9.8.7", server.port]}]
        assert f"10.9.8.7:{server.port}" in connect(tracker).text_summary()
        assert watch.talk([REQUEST, "t04", "", 1])[1][:2] == ["10.9.8.7", server.port]


def test_a_frozen_server_is_not_handed_out_until_it_wakes_up(farm):
    tracker = farm.tracker("--suspect-after", 4)
    server = farm.stock_server("cold", tracker)
    with RawTracker(tracker.address) as watch, RawTracker(tracker.address) as client:
        peers.until(lambda: watch.queue("cold")["free"] == 1, limit=10.0)
        stop_all(server, signal.SIGSTOP)
        tracker.wait_for("server is silent.*key='server:cold'", limit=15.0)
        client.post([REQUEST, "cold", "", 1])
        peers.until(lambda: watch.queue("cold") == {"free": 0, "pending": 1})
        stop_all(server, signal.SIGCONT)
        assert client.reply()[1][1] == server.port
    tracker.wait_for("server asks again")


def test_t13_servers_come_back_after_the_tracker_was_killed_and_sessions_go_on(farm, probe):
    port = peers.free_port()
    tracker = farm.tracker(port=port)
    farm.stock_server("t13", tracker)
    idle = farm.stock_server("t13", tracker)
    peers.until(lambda: free(tracker, "t13") == 2, limit=10.0)
    session = connect(tracker).request("t13")
    module = load_probe(session, probe)
    tracker.kill()
    assert module["noargs"]() == 42
    tracker = farm.tracker(port=port)
    peers.until(lambda: free(tracker, "t13") == 1, limit=15.0)
    assert module["noargs"]() == 42
    del module, session
    peers.until(lambda: free(tracker, "t13") == 2, limit=15.0)
    assert idle.child.poll() is None


def test_a_stock_client_names_its_needs_behind_the_key(lab):
    tracker, _ = lab
    session = connect(tracker)
    with RawTracker(tracker.address) as server:
        server.talk([UPDATE_INFO, {"key": "server:tagged", "addr": [None, 1], "tags": {"mem": 4096}}])
        server.talk([PUT, "tagged", [1, "tagged:1"], None])
        with pytest.raises(RuntimeError, match="no board of key 'tagged' meets 'mem>=8192'"):
            session.request("tagged -need=mem>=8192")
        with pytest.raises(RuntimeError, match="no device within 0.2 s"):
            session.request("nobody -wait=0.2", max_retry=1)
        assert server.queue("tagged") == {"free": 1, "pending": 0}


def test_t17_each_board_says_its_state_holder_and_since_when(lab):
    tracker, servers = lab
    with RawTracker(tracker.address) as raw:
        session = connect(tracker).request("board")
        boards = raw.talk([6, "boards"])[1]["boards"]
        assert sorted(b["addr"][1] for b in boards) == sorted(s.port for s in servers)
        assert sorted((b["state"], b["holder"]) for b in boards) == [("busy", "127.0.0.1"), ("free", None)]
        assert all(b["key"] == "server:board" and b["seconds"] >= 0 for b in boards)
        del session
        peers.until(lambda: raw.queue("board")["free"] == 2, limit=10.0)


def test_a_tuner_style_client_counts_the_servers(lab):
    """The stock tuner's way to find out whether a board is there."""
    tracker, _ = lab
    info = connect(tracker).summary()
    keys = [server["key"].split(":") for server in info["server_info"]]
    assert sum(1 for kind, key in keys if (kind, key) == ("server", "board")) == 2


def test_the_recorded_conversation_gives_the_recorded_answers(tracker):
    script = json.loads((peers.ROOT / "tests/data/captures/tracker_scheduling.json").read_text())
    raws = {}
    for message in script:
        data = bytes.fromhex(message["hex"])
        raw = raws.get(message["conn"]) or raws.setdefault(message["conn"], wire.Raw(tracker.address))
        if message["from"] == "client":
            raw.send(data) if data else raw.close()
        elif data:
            heard = raw.receive(len(data))
            in_no_order = data[4:6] == b'["'
            assert sorted(heard) == sorted(data) if in_no_order else heard == data, message["note"]


def test_match_keys_of_one_connection_are_seen_by_a_stock_client(tracker):
    with RawTracker(tracker.address) as server:
        server.talk([UPDATE_INFO, {"key": "server:many", "addr": [None, 1]}])
        for n in range(3):
            server.talk([PUT, "many", [1, f"many:{n}"], None])
        assert connect(tracker).summary()["queue_info"]["many"] == {"free": 3, "pending": 0}
