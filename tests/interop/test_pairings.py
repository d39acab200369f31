"""A board requested through a tracker, in every mixture of our parts and stock ones."""

import itertools
import subprocess

import numpy as np
import pytest

import peers

MIXTURES = [m for m in itertools.product(("ours", "stock"), repeat=3) if "ours" in m]


def run_stock_client(tracker, library):
    import tvm
    from tvm import rpc

    session = rpc.connect_tracker(tracker.host, tracker.port).request("pair", session_timeout=60)
    session.upload(str(library))
    module = session.load_module(library.name)
    a = tvm.runtime.tensor(np.arange(4, dtype="float32"), session.cpu())
    b = tvm.runtime.empty((4,), "float32", session.cpu())
    module["add_one"](a, b)
    assert min(module.time_evaluator("add_one", session.cpu(), number=2, repeat=2)(a, b).results) >= 0
    return b.numpy()


def run_our_client(tracker, library, folder):
    np.save(folder / "a.npy", np.arange(4, dtype="float32"))
    where = ["--tracker", tracker.at, "-k", "pair", "--session-timeout", "60"]
    more = ["-i", folder / "a.npy", "-o", f"{folder}/b.npy=float32[4]"]
    done = subprocess.run([str(c) for c in [peers.needed("outpost"), "run", *where, library, "add_one", *more]],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert done.returncode == 0, done.stdout
    return np.load(folder / "b.npy")


@pytest.mark.parametrize("client,server,tracker", MIXTURES)
def test_a_library_runs_in_every_mixture(farm, kernels, tmp_path, client, server, tracker):
    lab = farm.tracker() if tracker == "ours" else farm.stock_tracker()
    (farm.server if server == "ours" else farm.stock_server)(key="pair", tracker=lab)
    for _ in range(2):  # the second time the board must have come back
        got = run_our_client(lab, kernels, tmp_path) if client == "ours" else run_stock_client(lab, kernels)
        assert got.tolist() == [1, 2, 3, 4]
