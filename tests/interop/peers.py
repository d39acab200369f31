"""Real processes for the interop tests: ours and the stock peer's, on loopback, each on a port of its own."""

import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_LIMIT = 60.0  # seconds until a daemon must say that it listens; stock needs 2 to 10 on a busy machine
LISTENING = re.compile(r"(?:listening|bind to).*?[:=](\d+)(?=[\s,]|$)")


def free_port(host="127.0.0.1"):
    """A port that was free just now; only for programs that cannot bind port 0 and say what they got."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def until(what, limit=5.0, step=0.02):
    """Waits for `what()` to be true and gives its value; fails after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < end, f"not seen within {limit} s: {getattr(what, '__doc__', None) or what}"
        time.sleep(step)


def listens(port):
    """The port is in the listen state; a stock server says that it is bound a moment before."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


def alive(pid):
    """True while the process exists and is no zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def descendants(pid):
    """Process ids below `pid`, found by parent; what was re-parented is not among them."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    out, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            out.append(child)
            todo.append(child)
    return out


def memory_kb(pid, field="VmRSS"):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


def kill_all(pids):
    """SIGKILL to each; one may be gone already, since a worker follows its parent into death."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Process:
    """A child whose lines are kept; wait_for() waits for one of them."""

    def __init__(self, command, env=None, cwd=None):
        self.command = [str(c) for c in command]
        self.lines, self.condition, self.ended = [], threading.Condition(), False
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}, cwd=cwd,
            text=True, errors="replace", start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self):
        return self.child.pid

    def _read(self):
        for line in self.child.stdout:
            with self.condition:
                self.lines.append(line.rstrip("\n"))
                self.condition.notify_all()
        with self.condition:
            self.ended = True
            self.condition.notify_all()

    def text(self):
        with self.condition:
            return "\n".join(self.lines)

    def wait_for(self, pattern, limit=10.0, start=0):
        """The match of the first line from number `start` on that fits; fails with the whole output."""
        found, end, at = None, time.monotonic() + limit, start
        with self.condition:
            while found is None:
                while at < len(self.lines) and found is None:
                    found = re.search(pattern, self.lines[at])
                    at += 1
                left = end - time.monotonic()
                if found is None and (left <= 0 or self.ended):
                    raise AssertionError(f"no line like {pattern!r} from {self.command}:\n" + "\n".join(self.lines))
                if found is None:
                    self.condition.wait(left)
        return found

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, limit=10.0):
        """The exit code, negative for a signal."""
        return self.child.wait(limit)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def stop(self):
        """Ends the process, gently first, and everything in its process group."""
        below = descendants(self.pid) if self.child.poll() is None else []
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(5.0)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        kill_all(pid for pid in below if alive(pid))


class Daemon(Process):
    """A process that listens; `address` is where."""

    def __init__(self, command, host="127.0.0.1", **more):
        super().__init__(command, **more)
        try:
            self.host, self.port = host, int(self.wait_for(LISTENING, START_LIMIT)[1])
            until(lambda: listens(self.port))
        except AssertionError:
            self.stop()
            raise

    @property
    def address(self):
        return self.host, self.port

    @property
    def at(self):
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def binary(name):
    """Path of one of our programs, or None: OUTPOST_BIN, else the release build, else the dev build."""
    named = os.environ.get("OUTPOST_BIN")
    folders = [pathlib.Path(named)] if named else [ROOT / "build" / p / "bin" for p in ("release", "dev")]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    return None


class Farm:
    """Starts processes and stops all of them at the end."""

    def __init__(self):
        self.running = []

    def keep(self, process):
        self.running.append(process)
        return process

    def close(self):
        for process in reversed(self.running):
            process.stop()

    def run(self, *command, **more):
        return self.keep(Process(command, **more))

    def python(self, code, *arguments):
        """A client script in a process of its own."""
        return self.run(sys.executable, "-c", code, *arguments)

    def stock_tracker(self, host="127.0.0.1"):
        port = free_port(host)
        return self.keep(Daemon([sys.executable, "-m", "tvm.exec.rpc_tracker", "--host", host,
                                 "--port", port, "--port-end", port + 50], host))

    def stock_server(self, key="", tracker=None, host="127.0.0.1", arguments=()):
        port = free_port(host)
        command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", host, "--port", port,
                   "--port-end", port + 50, "--key", key, *arguments]
        if tracker is not None:
            command += ["--tracker", f"{tracker.host}:{tracker.port}"]
        return self.keep(Daemon(command, host))

    def tracker(self, *arguments, host="127.0.0.1", port=0, **more):
        return self.keep(Daemon([needed("tracker"), "--host", host, "--port", port, *arguments], host, **more))

    def server(self, *arguments, key="", tracker=None, host="127.0.0.1", port=0, **more):
        command = [needed("rpc_server"), "--host", host, "--port", port, *arguments]
        if key:
            command += ["--key", key]
        if tracker is not None:
            command += ["--tracker", tracker.at]
        return self.keep(Daemon(command, host, **more))


def needed(name):
    """Path of one of our programs; skips the test when it is not built, unless OUTPOST_MUST_RUN=1 forbids that."""
    found = binary(name)
    if found is None:
        import pytest

        text = f"program '{name}' is not built (set OUTPOST_BIN or build the release preset)"
        if os.environ.get("OUTPOST_MUST_RUN") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return found
