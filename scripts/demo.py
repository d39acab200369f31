"""The demonstration behind scripts/demo: a compiled model on a board, requested through a tracker, checked, timed."""

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
BATCH, INNER, HIDDEN, CLASSES = 16, 256, 128, 10


def say(text=""):
    print(text, flush=True)


def weights():
    rng = np.random.default_rng(7)
    shapes = [(INNER, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES)]
    return [0.1 * rng.standard_normal(shape).astype("float32") for shape in shapes]


def compile_model(path):
    """A perceptron with one hidden layer as a Relax library of the host, made by the stock compiler."""
    import tvm
    from tvm import relax
    from tvm.script import relax as R

    first, bias, second = map(relax.const, weights())
    x = relax.Var("x", R.Tensor([BATCH, INNER], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.add(relax.op.matmul(x, first), bias))
            hidden = builder.emit(relax.op.nn.relu(hidden))
            out = builder.emit_output(relax.op.nn.softmax(relax.op.matmul(hidden, second)))
        builder.emit_func_output(out)
    tvm.compile(builder.get(), target="llvm").export_library(str(path))


def expected(x):
    first, bias, second = weights()
    logits = np.maximum(x @ first + bias, 0) @ second
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def run_stock_client(tracker, library, x):
    import tvm
    from tvm import relax, rpc

    began = time.perf_counter()
    session = rpc.connect_tracker(tracker.host, tracker.port).request(KEY, session_timeout=60)
    granted = time.perf_counter()
    session.upload(str(library))
    board = session.cpu()
    machine = relax.VirtualMachine(session.load_module(library.name), board)
    far = tvm.runtime.tensor(x, board)
    got = machine["main"](far).numpy()
    done = time.perf_counter()
    timing = machine.time_evaluator("main", board, number=20, repeat=5)(far)
    say(f"   granted after {1e3 * (granted - began):.1f} ms, "
        f"uploaded, loaded and run after {1e3 * (done - granted):.1f} ms more")
    say(f"   on the board: mean {1e6 * timing.mean:.1f} us, min {1e6 * timing.min:.1f} us of 5 measurements")
    return got


def compare(got, x):
    want = expected(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    say(f"   equal to numpy's result; largest difference {float(np.abs(got - want).max()):.1e}")


def outpost(*arguments):
    """Runs the command line, shows it and what it printed."""
    command = [str(a) for a in arguments]
    say("   $ outpost " + " ".join(os.path.basename(c) if c.startswith("/") else c for c in command))
    out = subprocess.run([peers.binary("outpost"), *command], check=True, text=True, stdout=subprocess.PIPE).stdout
    for line in out.splitlines():
        say("     " + line)


def run_command_line(tracker, library, x, folder):
    outpost("devices", "--tracker", tracker.at)
    np.save(folder / "x.npy", x)
    where = ["--tracker", tracker.at, "-k", KEY]
    outpost("run", *where, library, "main", "-i", folder / "x.npy", "-o", folder / "out.npy")
    compare(np.load(folder / "out.npy"), x)
    outpost("time", *where, library, "main", "-i", folder / "x.npy", "-n", 20, "-r", 5)


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
    x = np.random.default_rng(8).standard_normal((BATCH, INNER)).astype("float32")
    compare(run_stock_client(tracker, library, x), x)

    say("4. The same from the command line, without Python")
    run_command_line(tracker, library, x, folder)


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
