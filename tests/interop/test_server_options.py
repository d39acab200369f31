"""field-reports.md sections 6 and 9: options, addresses, folders, start-up and what it says."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

import peers
import wire


def run_server(*arguments, env=None):
    """A start that is expected to end by itself: (exit code, output)."""
    done = subprocess.run([peers.needed("rpc_server"), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=20, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout


WRONG = [(["--prot", "1"], "unknown option '--prot', did you mean '--port'?"),
         (["--traker", "a:1"], "unknown option '--traker', did you mean '--tracker'?"),
         (["--port", "x"], "x"), (["lab"], "unexpected argument 'lab'"),
         (["--tracker", "host:x", "--key", "k"],
          "--tracker: 'host:x' is not host:port: port 'x' is not a number from 0 to 65535"),
         (["--tracker", "lab"], "--tracker needs --key"), (["--port", "9000", "--port-end", "8000"], "--port-end 8000"),
         (["--no-fork", "--slots", "2"], "--no-fork serves one session at a time"), (["--slots", "0"], "slots")]


@pytest.mark.parametrize("arguments, says", WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_U03_U04_a_wrong_option_gets_one_exact_line(arguments, says):
    code, text = run_server(*arguments)
    assert code == 2
    assert says in text and text.startswith("rpc_server: ") and text.count("\n") == 1


def test_U03_a_misspelt_config_key_is_named(tmp_path):
    config = tmp_path / "server.toml"
    config.write_text("solts = 2\n")
    code, text = run_server("--config", config)
    assert (code, text) == (2, "rpc_server: unknown key 'solts' in the config file, did you mean 'slots'?\n")


def test_U03_options_config_and_environment_show_in_check(tmp_path):
    config = tmp_path / "server.toml"
    config.write_text('slots = 3\nkey = "pi4"\n')
    code, text = run_server("--config", config, "--memory-max", "1GiB", "--tracker", "lab", "--port", 0,
                            "--work-dir", tmp_path, "--check", env={"OUTPOST_CUSTOM_ADDR": "10.9.8.7"})
    assert code == 0, text
    for line in ("slots=3", "key=pi4", "memory_bytes_max=1073741824", "tracker=lab:9190", "custom_addr=10.9.8.7",
                 "listen=ok", "work_dir_usable=ok", "worker=ok", "spare_workers=6"):
        assert line in text.splitlines()


def test_U03_check_fails_when_a_library_does_not_load(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    code, text = run_server("--check", "--port", 0, "--load-library", broken)
    assert code == 1
    assert re.search(r"worker=failed: .*broken\.so", text)


def test_U03_a_library_that_does_not_load_ends_the_start(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    code, text = run_server("--port", 0, "--host", "127.0.0.1", "--load-library", broken)
    assert code == 1
    assert "cannot start workers" in text and "broken.so" in text


def test_version_and_help_exit_with_0():
    code, text = run_server("--version")
    assert code == 0 and text.startswith("outpost ")
    code, text = run_server("--help")
    assert code == 0 and "--tracker" in text and "Examples:" in text


def test_the_stock_spelling_of_every_option_is_taken(farm, tracker, next_client_ok, probe):
    server = farm.server("--port-end", "0", f"--tracker={tracker.at}", "--key=pi", "--custom-addr=127.0.0.1",
                         f"--load-library={probe}:{probe}")
    server.wait_for("registered tracker=")


def test_silent_logs_no_sessions(farm, next_client_ok):
    port = peers.free_port()
    server = farm.run(peers.needed("rpc_server"), "--host", "127.0.0.1", "--port", port, "--silent")
    server.address = ("127.0.0.1", port)
    peers.until(lambda: listening(server.address))
    next_client_ok(server)
    assert server.text() == ""


def listening(address):
    import socket

    try:
        socket.create_connection(address).close()
        return True
    except OSError:
        return False


@pytest.mark.parametrize("host, reach", [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), ("0.0.0.0", ["127.0.0.1"]),
                                         ("::", ["127.0.0.1", "::1"]), ("localhost", ["localhost"])])
def test_U05_every_address_family_is_served(farm, next_client_ok, host, reach):
    server = farm.server(host=host)
    for name in reach:
        server.host = name
        next_client_ok(server)


def test_U05_an_ipv6_server_registers_with_an_ipv6_tracker(farm):
    from tracker_wire import RawTracker, REQUEST

    tracker = farm.tracker(host="::1")
    server = farm.server(key="pi", tracker=tracker, host="::1")
    server.wait_for(r"registered tracker=\[::1\]:\d+ address=\[::1\]:\d+")
    with RawTracker(tracker.address) as asking:
        host, port, match_key = asking.talk([REQUEST, "pi", "", 1])[1]
    with wire.session((host, port), f"client:{match_key}"):
        pass


def test_U06_the_service_manager_is_told_and_a_connect_right_after_works(farm, tmp_path, next_client_ok):
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        server = farm.server(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(4096).startswith(b"READY=1")
        next_client_ok(server)
        server.signal(signal.SIGTERM)
        assert manager.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("form, pattern", [("json", r'^\{"time":".*"event":"listening","port":\d+,'),
                                           ("journal", r"^<6>rpc: listening port=\d+ ")])
def test_log_formats(farm, form, pattern):
    port = peers.free_port()
    server = farm.run(peers.needed("rpc_server"), "--host", "127.0.0.1", "--port", port, "--log-format", form)
    server.wait_for(pattern)


def roots(folder):
    return [p for p in pathlib.Path(folder).iterdir() if p.name.startswith("outpost_rpc.")]


ENDS = ["shutdown", "close", "time-out", "crash"]


@pytest.mark.parametrize("end", ENDS)
def test_F01_the_folder_goes_with_the_session(farm, probe, tmp_path, end):
    server = farm.server("--work-dir", tmp_path)
    raw = wire.session(server.address, "client: -timeout=1" if end == "time-out" else "client:")
    member = raw.load(pathlib.Path(probe).read_bytes())
    crash = raw.member(member, "crash")
    raw.call_named("tvm.rpc.server.upload", "big.bin", bytes(10 << 20))
    root = roots(tmp_path)[0]
    folder = next(p for p in root.iterdir() if (p / "big.bin").exists())
    if end == "shutdown":
        raw.frame(wire.SHUTDOWN)
    elif end == "close":
        raw.close()
    elif end == "crash":
        with pytest.raises(wire.RemoteError):
            raw.call(crash)
    peers.until(lambda: not folder.exists(), 3.0)


def test_F01_killing_the_server_leaves_neither_folders_nor_processes(farm, probe, tmp_path):
    server = farm.server("--work-dir", tmp_path)
    raw = wire.session(server.address)
    module = raw.load(pathlib.Path(probe).read_bytes())
    child = raw.call(raw.member(module, "child"))[1]
    below = peers.descendants(server.pid)
    assert len(below) >= 3
    server.kill()
    peers.until(lambda: not roots(tmp_path), 3.0)
    peers.until(lambda: not any(peers.alive(p) for p in [child, *below]), 3.0)


def test_F01_folders_of_a_crash_are_removed_at_the_next_start(farm, tmp_path):
    first = farm.server("--work-dir", tmp_path)
    stale = tmp_path / "outpost_rpc.crashd"
    (stale / "s1" / "deep").mkdir(parents=True)
    (stale / "s1" / "deep" / "file").write_bytes(b"x")
    (stale / "lock").touch()
    second = farm.server("--work-dir", tmp_path)
    second.wait_for("removed folders of an earlier crash count=1")
    assert not stale.exists()
    assert len(roots(tmp_path)) == 2  # the running first server's stays
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert len(roots(tmp_path)) == 1


def test_F07_the_work_folder_is_chosen(farm, tmp_path):
    server = farm.server("--work-dir", tmp_path / "new" / "work")
    assert len(roots(tmp_path / "new" / "work")) == 1
    with wire.session(server.address) as raw:
        assert str(tmp_path) in raw.call_named("tvm.rpc.server.workpath", "x")[1]


def test_F07_a_work_folder_that_cannot_be_used_ends_the_start(tmp_path):
    (tmp_path / "file").touch()
    code, text = run_server("--port", 0, "--host", "127.0.0.1", "--work-dir", tmp_path / "file")
    assert code == 1 and "work folder" in text and str(tmp_path / "file") in text


def test_F07_a_noexec_work_folder_ends_the_start():
    noexec = [m.split()[1] for m in pathlib.Path("/proc/mounts").read_text().splitlines()
              if {"noexec", "rw"} <= set(m.split()[3].split(",")) and os.access(m.split()[1], os.W_OK)]
    folder = next((m for m in noexec if m.startswith(("/dev/shm", "/run", "/tmp"))), None)
    if folder is None:
        pytest.skip("no writable noexec mount here")
    code, text = run_server("--port", 0, "--host", "127.0.0.1", "--work-dir", folder)
    assert code == 1 and "noexec" in text


def test_an_init_hook_runs_before_the_first_session(farm, tmp_path):
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/done\n")
    hook.chmod(0o755)
    farm.server("--init-hook", hook)
    assert (tmp_path / "done").exists()
    hook.write_text("#!/bin/sh\nexit 3\n")
    code, text = run_server("--port", 0, "--host", "127.0.0.1", "--init-hook", hook)
    assert code == 1 and "init hook" in text


def test_a_session_sees_only_the_environment_that_compiled_code_needs(farm, tmp_path):
    server = farm.server(env={"OUTPOST_SECRET": "s3cret", "TVM_NUM_THREADS": "3"})
    zygote = peers.until(lambda: peers.descendants(server.pid))[0]
    environment = pathlib.Path(f"/proc/{zygote}/environ").read_bytes()
    assert b"TVM_NUM_THREADS=3" in environment and b"s3cret" not in environment


def test_T15_an_idle_limit_is_off_by_default_and_named_when_it_ends_a_session(farm):
    server = farm.server("--timeout", "0.3")
    with wire.session(server.address) as raw:
        with pytest.raises(wire.RemoteError, match=r"option --timeout.*idle for 0\.3 s"):
            raw.answer()
    assert "idle_ms=none" in run_server("--check", "--port", 0)[1]
