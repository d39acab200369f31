"""Our tracker on plain sockets: framing, bad input, order, withdrawal, life of the process."""

import os
import signal
import socket
import struct
import subprocess

import pytest

import peers
import wire
from tracker_wire import PENDING, PING, PUT, REQUEST, STOP, SUMMARY, UPDATE_INFO, RawTracker

MAGIC = struct.pack("<i", wire.TRACKER_MAGIC)


def board(address, key, match_key, port=9090, custom=None):
    """A connection that offers one free device."""
    raw = RawTracker(address)
    assert raw.talk([UPDATE_INFO, {"key": "server:" + key, "addr": [None, port]}]) == 0
    assert raw.talk([PUT, key, [port, match_key], custom]) == 0
    return raw


def waiter(address, key, priority=1):
    """A connection that stands in line; returns when the tracker counts it."""
    raw = RawTracker(address)
    with RawTracker(address) as watch:
        before = watch.queue(key)["pending"]
        raw.post([REQUEST, key, "", priority])
        peers.until(lambda: watch.queue(key)["pending"] == before + 1)
    return raw


def test_t01_a_bad_length_closes_one_connection_and_costs_no_memory(tracker):
    with RawTracker(tracker.address) as watch:
        before = peers.memory_kb(tracker.pid)
        for size in (0x7FFFFFFF, 0, -5, (1 << 20) + 1):
            for _ in range(20):
                with RawTracker(tracker.address) as raw:
                    raw.send(struct.pack("<i", size) + b"x" * 1000)
                    assert raw.at_end()
        assert watch.summary() == {"queue_info": {}, "server_info": []}
        assert peers.memory_kb(tracker.pid) - before < 4096


def test_a_message_of_exactly_one_mebibyte_is_fine(tracker):
    with RawTracker(tracker.address) as raw:
        raw.post(b"[1" + b" " * ((1 << 20) - 3) + b"]")
        assert raw.reply() == 0


def test_t08_bytes_may_come_one_by_one_or_all_at_once(tracker):
    ping = struct.pack("<i", 3) + b"[1]"
    with wire.Raw(tracker.address) as raw:
        for byte in MAGIC + ping:
            raw.send(bytes([byte]))
        assert raw.receive(4) == MAGIC
        assert raw.receive(5) == b"\x01\0\0\x000"
    with wire.Raw(tracker.address) as raw:
        raw.send(MAGIC + ping * 3)
        assert raw.receive(4 + 15) == MAGIC + b"\x01\0\0\x000" * 3


@pytest.mark.parametrize("bad", [b"{", b"[]", b"5", b"[99]", b"[4]", b'[3,"k",5,null]', b'[4,"k","",{}]',
                                 b"\xff\xfe[1]", b"[" * 5000, b'["1"]', b'[5, {"key": "server:k"}]'])
def test_t08_bad_messages_close_their_connection_only(tracker, bad):
    with RawTracker(tracker.address) as other, RawTracker(tracker.address) as raw:
        raw.post([PING])
        raw.post(bad)
        assert raw.reply() == 0
        assert raw.at_end()
        assert other.talk([PING]) == 0
    tracker.wait_for("connection closed peer=127.0.0.1:[0-9]+ reason=")


def test_a_wrong_magic_is_closed_and_named_in_the_log(tracker):
    with wire.Raw(tracker.address) as raw:
        raw.send(b"GET / HTTP/1.1\r\n\r\n")
        assert raw.at_end()
    tracker.wait_for("magic 0x20544547 is not that of a tracker's peer")


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
def test_t09_a_dead_requester_is_withdrawn_and_swallows_nothing(tracker, how):
    gone, alive = waiter(tracker.address, "k", 9), waiter(tracker.address, "k")
    with RawTracker(tracker.address) as watch:
        if how == "half-close":
            gone.socket.shutdown(socket.SHUT_WR)
        else:
            gone.reset() if how == "reset" else gone.close()
        peers.until(lambda: watch.queue("k") == {"free": 0, "pending": 1}, limit=1.0)
    with board(tracker.address, "k", "k:1"):
        assert alive.reply() == [0, ["127.0.0.1", 9090, "k:1"]]
    if how == "half-close":
        assert gone.at_end()


def test_answers_that_are_due_reach_a_half_closed_client(tracker):
    with RawTracker(tracker.address) as raw:
        for _ in range(100):
            raw.post([PING])
        raw.socket.shutdown(socket.SHUT_WR)
        assert [raw.reply() for _ in range(100)] == [0] * 100
        assert raw.at_end()


@pytest.mark.parametrize("key", ["lab:a:b", "l\u00e4b", "127.0.0.1:5555", "\U0001f600"])
def test_t10_keys_with_colons_and_foreign_letters(tracker, key):
    with board(tracker.address, key, key + ":0.5"), RawTracker(tracker.address) as client:
        assert client.queue(key) == {"free": 1, "pending": 0}
        assert client.talk([REQUEST, key, "", 1]) == [0, ["127.0.0.1", 9090, key + ":0.5"]]
    with board(tracker.address, key, key + ":0.6"):
        pass
    with RawTracker(tracker.address) as client:
        peers.until(lambda: client.queue(key) == {"free": 0, "pending": 0})
        peers.until(lambda: client.summary()["server_info"] == [])


def test_t16_a_match_key_put_twice_is_handed_out_once(tracker):
    with board(tracker.address, "k", "k:1") as server, RawTracker(tracker.address) as client:
        assert server.talk([PUT, "k", [9090, "k:1"], None]) == 0
        assert client.talk([REQUEST, "k", "", 1])[1][2] == "k:1"
        client.post([REQUEST, "k", "", 1])
        assert server.talk([PUT, "k", [9090, "k:1"], None]) == 0
        assert server.talk([PENDING]) == []
        assert server.queue("k") == {"free": 0, "pending": 1}
        assert server.talk([PUT, "k", [9090, "k:2"], None]) == 0
        assert client.reply()[1][2] == "k:2"
    tracker.wait_for("match key offered twice.*'k:1'")


def test_priority_first_then_first_come(tracker):
    line = [waiter(tracker.address, "k", p) for p in (0, 5, 5, 2.5)]
    with board(tracker.address, "k", "k:0") as server:
        for n in range(1, 4):
            server.talk([PUT, "k", [9090, f"k:{n}"], None])
        assert [raw.reply()[1][2] for raw in (line[1], line[2], line[3], line[0])] == ["k:0", "k:1", "k:2", "k:3"]


def test_t02_a_wait_for_a_key_without_a_board_is_said_at_once(tracker):
    with waiter(tracker.address, "typo"), RawTracker(tracker.address) as watch:
        tracker.wait_for("request waits for a key that no server has peer=.* key='typo'")
        assert watch.queue("typo") == {"free": 0, "pending": 1}


def test_an_ipv4_peer_of_a_dual_stack_tracker_is_handed_out_as_ipv4(farm):
    tracker = farm.tracker(host="::")
    with board(("127.0.0.1", tracker.port), "k", "k:1"), board(("::1", tracker.port), "k", "k:2"):
        with RawTracker(("::1", tracker.port)) as client:
            assert client.talk([REQUEST, "k", "", 1]) == [0, ["127.0.0.1", 9090, "k:1"]]
            assert client.talk([REQUEST, "k", "", 1]) == [0, ["::1", 9090, "k:2"]]
            assert sorted(i["addr"][0] for i in client.summary()["server_info"]) == ["127.0.0.1", "::1"]


def test_a_peer_that_reads_nothing_is_held_back_and_then_closed(farm):
    tracker = farm.tracker("--slow-reader", 1, "--log-level", "debug")
    with RawTracker(tracker.address) as other, RawTracker(tracker.address) as raw:
        other.talk([UPDATE_INFO, {"key": "server:k", "addr": [None, 1], "text": "x" * 50000}])
        before = peers.memory_kb(tracker.pid)
        raw.send((struct.pack("<i", 3) + b"[6]") * 2000)  # 100 MB of answers
        tracker.wait_for("does not read its answers")
        assert peers.memory_kb(tracker.pid, "VmHWM") - before < 8192
        assert other.talk([PING]) == 0


def test_a_thousand_connections_at_once_are_all_served(tracker):
    raws = [wire.Raw(tracker.address) for _ in range(1000)]
    for raw in raws:
        raw.send(MAGIC + struct.pack("<i", 3) + b"[1]")
    for raw in raws:
        assert raw.receive(9) == MAGIC + b"\x01\0\0\x000"
        raw.close()


def test_connections_above_the_limit_wait_their_turn(farm):
    tracker = farm.tracker("--connections-max", 2)
    first, second = RawTracker(tracker.address), RawTracker(tracker.address)
    with wire.Raw(tracker.address) as third:
        third.send(MAGIC)
        assert second.talk([PING]) == 0
        first.close()
        assert third.receive(4) == MAGIC
    second.close()


def test_a_connection_without_a_magic_ends(farm):
    tracker = farm.tracker("--handshake-within", 1)
    with wire.Raw(tracker.address) as raw:
        assert raw.at_end()
    tracker.wait_for("no magic in time")


def test_only_the_owner_stops_it_by_message(farm, tmp_path):
    key = tmp_path / "key"
    key.write_text("a secret of the owner\n")
    tracker = farm.tracker("--stop-key-file", key)
    with RawTracker(tracker.address) as raw, RawTracker(tracker.address) as other:
        assert raw.talk([STOP, "wrong"]) == -1
        assert raw.talk([STOP, "a secret of the owner"]) == 0
        assert raw.at_end() and other.at_end()
    assert tracker.wait() == 0


def test_nobody_stops_it_without_a_key(tracker):
    with RawTracker(tracker.address) as raw:
        for guess in ("", None, 0):
            assert raw.talk([STOP, guess]) == -1


def test_sigterm_ends_it_cleanly(tracker):
    with RawTracker(tracker.address) as raw:
        tracker.signal(signal.SIGTERM)
        assert raw.at_end()
    assert tracker.wait() == 0


def test_it_tells_the_service_manager(farm, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(10)
        tracker = farm.tracker(env={"NOTIFY_SOCKET": path})
        assert s.recv(100) == b"READY=1"
        tracker.signal(signal.SIGTERM)
        assert s.recv(100) == b"STOPPING=1"


def test_it_takes_the_next_port_and_names_a_full_range(farm):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert farm.tracker("--port-end", port + 20, port=port).port > port
        full = farm.run(peers.needed("tracker"), "--host", "127.0.0.1", "--port", port, "--port-end", port + 1)
        full.wait_for(f"cannot start.*port {port}")
        assert full.wait() == 1


@pytest.mark.parametrize("arguments, line", [
    (["--prot", "1"], "tracker: unknown option '--prot', did you mean '--port'?"),
    (["--suspect-aftre=3"], "tracker: unknown option '--suspect-aftre', did you mean '--suspect-after'?"),
    (["extra"], "tracker: unexpected argument 'extra'"),
])
def test_a_wrong_option_is_one_line_and_exit_code_2(arguments, line):
    done = subprocess.run([peers.needed("tracker"), *arguments], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr, done.stdout) == (2, line + "\n", "")


def test_config_file_and_environment(farm, tmp_path):
    config = tmp_path / "tracker.toml"
    config.write_text('suspect-after = 77\nhost = "127.0.0.1"\n')
    shown = subprocess.run([peers.needed("tracker"), "--config", config, "--check"], capture_output=True, text=True,
                           env={**os.environ, "OUTPOST_KEYS_MAX": "55"}, timeout=20)
    assert shown.returncode == 0
    assert "77 s of silence" in shown.stdout and "55" in shown.stdout
    config.write_text("suspect-aftre = 77\n")
    wrong = subprocess.run([peers.needed("tracker"), "--config", config], capture_output=True, text=True, timeout=20)
    assert wrong.returncode == 2
    assert wrong.stderr == ("tracker: unknown key 'suspect-aftre' in the config file, "
                            "did you mean 'suspect-after'?\n")
