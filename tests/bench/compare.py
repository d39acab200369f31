"""Runs several RPC servers through the same benchmarks in turn (A B A B) and prints medians and ratios. See run.sh."""
import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS = ["session", "call", "alloc", "upload", "copy", "parallel", "memory"]
PYTHON_GROUPS = ["vm", "client", "tuner"]


class Entry:
    def __init__(self, name):
        self.name, self.server, self.tracker, self.kind = name, None, None, "rpc"
        self.proc, self.port, self.crashes = None, 0, 0


class Start(argparse.Action):
    def __call__(self, parser, ns, value, option=None):
        ns.entries.append(Entry(value))


class Fill(argparse.Action):
    def __call__(self, parser, ns, value, option=None):
        if not ns.entries:
            parser.error(f"{option} needs a --name before it")
        setattr(ns.entries[-1], self.dest, value)


def listening(port):
    want = f":{port:04X}"
    for f in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            for line in open(f):
                p = line.split()
                if p[3] == "0A" and p[1].endswith(want):
                    return True
        except OSError:
            pass
    return False


where = {}  # current folder and environment of the servers
next_port = [20000 + os.getpid() % 9000]


def free_port():
    while True:
        next_port[0] += 1
        if not listening(next_port[0]):
            return next_port[0]


def start(cmd, port, log, limit=30, **fields):
    """The command's process (its own group) once something listens on the port; and how long that took."""
    text = cmd.format(port=port, port_end=port + 1, **fields)
    t = time.perf_counter()
    words = shlex.split(text)
    if "/" in words[0]:
        words[0] = os.path.abspath(words[0])  # the server runs in another folder
    p = subprocess.Popen(words, **where, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    while not listening(port):
        if p.poll() is not None or time.perf_counter() - t > limit:
            stop(p)
            raise RuntimeError(f"does not listen on {port}: {text}")
        time.sleep(0.002)
    return p, time.perf_counter() - t


def stop(p):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(p.pid, sig)
        except ProcessLookupError:
            break
        end = time.time() + 2
        while time.time() < end and sig == signal.SIGTERM:
            p.poll()
            try:
                os.killpg(p.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)
    p.wait()


def last_json(cmd, limit, **kw):
    try:
        r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, text=True, **kw)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {limit} s"}
    for line in reversed(r.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {"failed": (r.stderr.strip().splitlines() or ["no output"])[-1][:300]}


def better_low(k):
    return k.endswith(("_us", "_ms", "_ns", "_mb", "_x", "ns_per_op", "ns_per_call", "us_per_repeat"))


def show(v):
    return f"{v:.0f}" if abs(v) >= 1000 else f"{v:.4g}"


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.set_defaults(entries=[])
    p.add_argument("--name", action=Start, help="starts an entry")
    p.add_argument("--server", action=Fill, help="command with {port} {port_end} {key} {tracker}; {tracker} becomes nothing or --tracker=host:port")
    p.add_argument("--tracker", action=Fill, help="that entry's tracker command with {port}; default: the stock one")
    p.add_argument("--stock-python", help="a python with apache-tvm: adds its server")
    p.add_argument("--stock-cpp", help="a built tvm_rpc: adds it")
    p.add_argument("--floor", action="store_true", help="adds the server that does no work")
    p.add_argument("--client-python", help="a python with apache-tvm for the groups vm, client and tuner (default: --stock-python)")
    p.add_argument("--what", default=",".join(GROUPS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=0.5)
    p.add_argument("--count", type=int, default=50, help="sessions per session run")
    p.add_argument("--sizes", default="1K,1M,256M")
    p.add_argument("--copy-sizes", default="4,1K,64K,1M,16M,256M")
    p.add_argument("--parallel", default="1,8,64")
    p.add_argument("--base", help="ratios are against this entry (default: the first)")
    p.add_argument("--bin", default="build")
    p.add_argument("--workdir", help="where servers keep their files: current and TMPDIR folder (default: a folder in /dev/shm, to keep the disk out of it)")
    p.add_argument("--out", default="bench.json")
    a = p.parse_args()
    client = a.client_python or a.stock_python
    entries = a.entries
    if a.stock_python:
        e = Entry("stock-python")
        e.server = f"{a.stock_python} -m tvm.exec.rpc_server --host 127.0.0.1 --port {{port}} --port-end {{port_end}} --key {{key}} {{tracker}}"
        entries.append(e)
    if a.stock_cpp:
        e = Entry("stock-cpp")
        e.server = f"{a.stock_cpp} server --host=127.0.0.1 --port={{port}} --port-end={{port_end}} --key={{key}} {{tracker}}"
        entries.append(e)
    if a.floor:
        e = Entry("floor")
        e.server, e.kind = f"{a.bin}/floor --serve {{port}}", "floor"
        entries.append(e)
    if not entries:
        p.error("nothing to measure")
    a.bin = os.path.abspath(a.bin)
    work = tempfile.mkdtemp(prefix="bench", dir=a.workdir or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    where.update(cwd=work, env=dict(os.environ, TMPDIR=work))
    log = open(a.out + ".log", "w")
    runs = []  # {name, round, group, load, values}

    def up(e, tracker=""):
        e.port = free_port()
        e.proc, took = start(e.server, e.port, log, key="bench", tracker=tracker)
        return took

    def record(e, rnd, group, values):
        runs.append({"name": e.name, "round": rnd, "group": group, "load": os.getloadavg()[0], "values": values})
        bad = {k: v for k, v in values.items() if k.endswith("failed")}
        print(f"[{rnd}] {group:9s} {e.name:14s} {'failed: ' + str(bad) if bad else 'ok'}", file=sys.stderr, flush=True)

    what = a.what.split(",")
    live = [e for e in entries]
    try:
        for e in list(live):
            try:
                record(e, -1, "start", {"server.start_to_listen_ms": up(e) * 1e3})
            except RuntimeError as x:
                record(e, -1, "start", {"start.failed": str(x)})
                live.remove(e)
        for rnd in range(a.rounds):
            for group in what:
                for e in live:
                    if group == "tuner":
                        continue
                    if e.proc.poll() is not None or not listening(e.port):
                        e.crashes += 1
                        stop(e.proc)
                        record(e, rnd, "start", {"server.start_to_listen_ms": up(e) * 1e3})
                    if group in GROUPS:
                        record(e, rnd, group, last_json(
                            [f"{a.bin}/rpc_bench", "--port", str(e.port), "--key", "bench", "--pid", str(e.proc.pid), "--what", group,
                             "--seconds", str(a.seconds), "--count", str(a.count), "--sizes", a.sizes, "--copy-sizes", a.copy_sizes,
                             "--parallel", a.parallel], 400))
                    elif e.kind == "rpc" and client:
                        record(e, rnd, group, last_json([client, f"{HERE}/{group}_bench.py", "--port", str(e.port), "--key", "bench"], 400))
                if group == "tuner" and client:
                    for e in live:
                        if e.kind != "rpc":
                            continue
                        tport = free_port()
                        tcmd = e.tracker or f"{client} -m tvm.exec.rpc_tracker --host 127.0.0.1 --port {{port}} --port-end {{port_end}}"
                        procs = []
                        try:
                            procs.append(start(tcmd, tport, log)[0])
                            sport = free_port()
                            procs.append(start(e.server, sport, log, key="bench", tracker=f"--tracker=127.0.0.1:{tport}")[0])
                            time.sleep(1)
                            record(e, rnd, group, last_json([client, f"{HERE}/tuner_cycle.py", "--tracker", f"127.0.0.1:{tport}", "--key", "bench"], 300))
                        except RuntimeError as x:
                            record(e, rnd, group, {"tuner.failed": str(x)})
                        finally:
                            for q in procs:
                                stop(q)
            if a.floor:
                e = Entry("machine")
                record(e, rnd, "floor", last_json([f"{a.bin}/floor"], 120, **where))
    finally:
        for e in entries:
            if e.proc:
                stop(e.proc)
        shutil.rmtree(work, ignore_errors=True)

    # medians
    table, order = {}, []
    for r in runs:
        for k, v in r["values"].items():
            if isinstance(v, (int, float)):
                if k not in order:
                    order.append(k)
                table.setdefault(k, {}).setdefault(r["name"], []).append(v)
    summary = {k: {n: {"median": statistics.median(v), "min": min(v), "max": max(v), "n": len(v)} for n, v in row.items()} for k, row in table.items()}
    names = [e.name for e in entries]
    base = a.base or names[0]
    env = {"cpus": os.cpu_count(), "kernel": os.uname().release}
    try:
        env["congestion_control"] = open("/proc/sys/net/ipv4/tcp_congestion_control").read().strip()
    except OSError:
        pass
    json.dump({"env": env, "crashes": {e.name: e.crashes for e in entries}, "summary": summary, "runs": runs}, open(a.out, "w"), indent=1)
    w = max(len(k) for k in order) if order else 10
    print(f"{'median (spread = (max-min)/median)':{w}s} " + " ".join(f"{n:>20s}" for n in names) + "   times better than " + base)
    for k in order:
        row = summary[k]
        if not any(n in row for n in names):
            continue
        cells, ratios = [], []
        for n in names:
            if n not in row:
                cells.append(f"{'-':>20s}")
                continue
            m = row[n]["median"]
            spread = (row[n]["max"] - row[n]["min"]) / m * 100 if m else 0
            cells.append(f"{show(m) + f' ±{spread:.0f}%':>20s}")
            if n != base and base in row and m and row[base]["median"]:
                q = row[base]["median"] / m if better_low(k) else m / row[base]["median"]
                ratios.append(f"{n} {q:.3g}x")
        print(f"{k:{w}s} " + " ".join(cells) + "   " + ", ".join(ratios))
    for k in order:
        if "machine" in summary[k]:
            print(f"{k:{w}s} {show(summary[k]['machine']['median']):>20s}")
    print("crashes:", {e.name: e.crashes for e in entries})


if __name__ == "__main__":
    main()
