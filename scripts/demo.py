"""The demonstration behind scripts/demo: a compiled model on a board, requested through a tracker, checked, timed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))
os.environ.setdefault("OUTPOST_BIN", str(ROOT / "build" / "release" / "bin"))

import numpy as np  # noqa: E402

import peers  # noqa: E402

KEY = "demo-board"
ROWS, INNER, COLUMNS = 64, 256, 128


def say(text=""):
    print(text, flush=True)


def compile_model(path):
    """relu(x @ w) as a library of the host, made by the stock compiler."""
    import tvm
    from tvm import te

    x = te.placeholder((ROWS, INNER), "float32", name="x")
    w = te.placeholder((INNER, COLUMNS), "float32", name="w")
    k = te.reduce_axis((0, INNER), name="k")
    product = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    out = te.compute((ROWS, COLUMNS), lambda i, j: te.max(product[i, j], 0.0), name="relu")
    tvm.compile(te.create_prim_func([x, w, out]), target="llvm").export_library(str(path))


def run_stock_client(tracker, library, x, w):
    import tvm
    from tvm import rpc

    began = time.perf_counter()
    session = rpc.connect_tracker(tracker.host, tracker.port).request(KEY, session_timeout=60)
    granted = time.perf_counter()
    session.upload(str(library))
    module = session.load_module(library.name)
    board = session.cpu()
    far_x, far_w = tvm.runtime.tensor(x, board), tvm.runtime.tensor(w, board)
    out = tvm.runtime.empty((ROWS, COLUMNS), "float32", board)
    module["main"](far_x, far_w, out)
    got = out.numpy()
    done = time.perf_counter()
    timing = module.time_evaluator("main", board, number=20, repeat=5)(far_x, far_w, out)
    say(f"   granted after {1e3 * (granted - began):.1f} ms, "
        f"uploaded, loaded and run after {1e3 * (done - granted):.1f} ms more")
    say(f"   relu(x @ w), {ROWS}x{INNER}x{COLUMNS}: mean {1e6 * timing.mean:.1f} us, min {1e6 * timing.min:.1f} us "
        f"over {len(timing.results)} repeats on the board")
    return got


def outpost(*arguments):
    return subprocess.run([peers.binary("outpost"), *map(str, arguments)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def run_our_client(tracker, library, x, w, folder):
    say("   $ outpost devices --tracker " + tracker.at)
    for line in outpost("devices", "--tracker", tracker.at).splitlines():
        say("     " + line)
    np.save(folder / "x.npy", x)
    np.save(folder / "w.npy", w)
    np.save(folder / "zero.npy", np.zeros((ROWS, COLUMNS), "float32"))
    inputs = [folder / name for name in ("x.npy", "w.npy", "zero.npy")]
    command = ["time", "--tracker", tracker.at, "--key", KEY, "--number", 20, "--repeat", 5, "--json", library, "main"]
    say("   $ outpost time --tracker ... --key demo-board model.so main x.npy w.npy zero.npy")
    timing = json.loads(outpost(*command, *inputs))
    say(f"   mean {1e6 * timing['mean']:.1f} us, min {1e6 * timing['min']:.1f} us")


def show(farm, folder):
    say("1. A tracker and a board's server, both on loopback")
    tracker = farm.tracker()
    server = farm.server(key=KEY, tracker=tracker)
    say(f"   tracker at {tracker.at}; rpc_server at {server.at}, registered as '{KEY}'")

    say("2. The stock compiler makes a library")
    library = folder / "model.so"
    compile_model(library)
    say(f"   {library.name}, {library.stat().st_size / 1024:.0f} KiB")

    say("3. The stock client asks the tracker for the board, uploads, loads, runs, times")
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((ROWS, INNER), (INNER, COLUMNS)))
    got = run_stock_client(tracker, library, x, w)
    want = np.maximum(x @ w, 0)
    error = float(np.abs(got - want).max())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    say(f"   equal to numpy's result; largest difference {error:.1e}")

    if peers.binary("outpost"):
        say("4. The same from the command line, without Python")
        run_our_client(tracker, library, x, w, folder)


def main():
    farm = peers.Farm()
    try:
        with tempfile.TemporaryDirectory() as folder:
            show(farm, pathlib.Path(folder))
    finally:
        farm.close()
    say("Done; tracker and server are stopped.")


if __name__ == "__main__":
    main()
