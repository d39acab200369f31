"""Recorded calls of the sample models: our VM in a process without the peer's runtime gives the peer's results."""

import subprocess
import sys

import pytest

import peers

FOLDERS = [
    "mlp_bytecode", "mlp_compiled", "cnn", "dynamic_bytecode", "dynamic_compiled", "control_bytecode",
    "control_compiled", "closures_bytecode", "closures_compiled", "tuples_bytecode", "tuples_compiled", "constants",
    "packed", "python_ops", "scopes", "threads", "two_cpus", "builtins", "const_loader", "decoder",
    "decoder_sliding", "rnn_state",
]
NAMES = {"rnn_state": "rnn", "decoder_sliding": "decoder"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    out = tmp_path_factory.mktemp("samples")
    names = sorted({NAMES.get(f, f).removesuffix("_bytecode").removesuffix("_compiled") for f in FOLDERS})
    subprocess.run([sys.executable, "-m", "samples", out, *names], cwd=peers.ROOT / "tests" / "interop", check=True)
    return out


@pytest.mark.parametrize("folder", FOLDERS)
def test_recorded_calls_give_the_same(samples, folder):
    library = peers.needed("liboutpost_vm_library.so")
    replay = peers.ROOT / "tests" / "interop" / "vm_replay.py"
    done = subprocess.run([sys.executable, replay, library, samples / folder],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
