"""The client library, as a user's program (client_check.cpp) has it, against stock servers and ours."""

import subprocess

import pytest

import peers

LIMIT = 60.0


def start(farm, whose):
    daemon = farm.server(key="lab") if whose == "ours" else farm.stock_server(key="lab")
    daemon.ours = whose == "ours"
    return daemon


@pytest.fixture(scope="module", params=["stock", "ours"])
def board(request):
    """A server with key `lab` for all checks that leave it as it was; `board.ours` tells whose it is."""
    farm = peers.Farm()
    yield start(farm, request.param)
    farm.close()


@pytest.fixture(params=["stock", "ours"])
def own_board(request, farm):
    """A server for one test."""
    return start(farm, request.param)


def command(daemon, check, *arguments, key="lab"):
    return [peers.needed("client_check"), daemon.host, daemon.port, key, check, *arguments]


def passes(daemon, check, *arguments):
    done = subprocess.run([str(c) for c in command(daemon, check, *arguments)], capture_output=True,
                          text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{daemon.text()}"
    return done.stdout


def test_values_of_every_kind(board):
    passes(board, "values")


def test_files(board, tmp_path):
    passes(board, "files", tmp_path)


def test_listing(farm):
    passes(farm.server(key="lab"), "listing")


def test_listing_is_not_offered_by_the_stock_python_server(farm):
    daemon = farm.stock_server(key="lab")
    done = subprocess.run([str(c) for c in command(daemon, "listing")], capture_output=True, text=True, timeout=LIMIT)
    assert "the server does not offer 'tvm.rpc.server.listdir'" in done.stderr


def test_tensors_and_views(board):
    passes(board, "tensors")


@pytest.mark.parametrize("size", [1, 65_536, 14_518_080, 300_000_007])
def test_p01_large_copies(board, size):
    if not board.ours and size > 100_000_000:
        pytest.skip("the stock server moves 70 MB a second")
    passes(board, "large_copy", size)


def test_p03_copies_are_cut_to_the_servers_limit(farm):
    daemon = farm.server("--frame-bytes-max", "1MiB", key="lab")
    passes(daemon, "large_copy", 14_518_080)


def test_modules_and_measuring(board, kernels):
    passes(board, "modules", kernels)


def test_p11_what_belongs_elsewhere_is_refused_in_plain_words(board):
    passes(board, "mixing")


def test_p11_a_tensor_of_another_session_is_refused(farm):
    text = passes(farm.server("--slots", "2", key="lab"), "mixing", "two")
    assert "belongs to another session" in text


def test_s03_the_sessions_time_out_has_its_own_error(own_board, probe):
    text = passes(own_board, "expiry", probe)
    assert "session_timeout: RPCSessionTimeoutError: Your 0.5s session has expired" in text


def test_a_call_that_takes_too_long_ends_at_the_clients_limit(own_board, probe):
    assert "no answer within 300 ms" in passes(own_board, "slow_call", probe)


def test_a_crash_on_the_server_is_an_error(own_board, probe):
    text = passes(own_board, "crash", probe)
    if own_board.ours:
        assert "SIGSEGV" in text


def test_closing_a_session_early(board):
    passes(board, "closed")


def test_a_wrong_key_is_named(board):
    assert "has no server with key 'no-such-key'" in passes(board, "wrong_key")


def test_p10_dropping_handles_is_quiet_when_the_server_is_gone(own_board):
    client = subprocess.Popen([str(c) for c in command(own_board, "orphan")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "holding\n"
    peers.kill_all([*peers.descendants(own_board.pid), own_board.pid])
    out, error = client.communicate("go\n", timeout=LIMIT)
    assert client.returncode == 0, out + error
    assert error == ""


@pytest.mark.parametrize("outer", ["stock", "ours"])
@pytest.mark.parametrize("inner", ["stock", "ours"])
def test_a_second_hop(farm, outer, inner):
    make = {"stock": farm.stock_server, "ours": farm.server}
    far, near = make[inner](key="far"), make[outer](key="lab")
    passes(near, "hop", far.host, far.port, "far")


@pytest.mark.parametrize("host", ["::1"])
def test_ipv6(farm, host):
    passes(farm.server(key="lab", host=host), "values")


@pytest.mark.parametrize("tracker", ["stock", "ours"])
@pytest.mark.parametrize("server", ["stock", "ours"])
def test_requests_through_a_tracker(farm, tracker, server):
    desk = farm.tracker() if tracker == "ours" else farm.stock_tracker()
    (farm.server if server == "ours" else farm.stock_server)(key="lab", tracker=desk)
    passes(desk, "tracker")


def test_a_lost_session_is_run_again(farm, probe):
    desk = farm.tracker()
    farm.server(key="lab", tracker=desk)
    passes(desk, "run_again", probe)
