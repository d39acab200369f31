"""Fixtures of the interop tests: real daemons, small libraries, and a check that a server still serves."""

import pathlib
import time

import pytest

import models
import peers
import wire


@pytest.fixture
def farm():
    """Starts processes; all of them are stopped when the test ends."""
    farm = peers.Farm()
    yield farm
    farm.close()


@pytest.fixture
def server(farm):
    """Our rpc_server with default options on a free port."""
    return farm.server()


@pytest.fixture
def tracker(farm):
    """Our tracker on a free port."""
    return farm.tracker()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artefacts")


@pytest.fixture(scope="session")
def probe(artefacts):
    """Path of the probe library; `models.build_probe(folder, 2)` makes its second version."""
    return models.build_probe(artefacts)


@pytest.fixture(scope="session")
def probe2(artefacts):
    return models.build_probe(artefacts, 2)


@pytest.fixture(scope="session")
def kernels(artefacts):
    """Path of a library with add_one and add, made by the stock compiler."""
    return models.build_kernels(artefacts)


@pytest.fixture
def next_client_ok(probe):
    """next_client_ok(server[, key]): a fresh client loads the probe and gets 42, all within `limit` seconds."""
    data = pathlib.Path(probe).read_bytes()

    def check(daemon, key="client:", limit=3.0):
        began = time.monotonic()
        with wire.session(daemon.address, key, timeout=limit) as raw:
            handle = raw.member(raw.load(data, "next.so"), "noargs")
            assert raw.call(handle) == [wire.INT, 42]
            raw.frame(wire.SHUTDOWN)
        took = time.monotonic() - began
        assert took < limit, f"served after {took:.2f} s, the limit is {limit} s"

    return check
