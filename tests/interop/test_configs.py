"""The commented files in configs/ against the programs: every option is there, every line is accepted."""

import re
import subprocess

import pytest

import peers

NOT_CONFIGURABLE = {"help", "version", "config", "check"}
LINE = re.compile(r"^# ([a-z][a-z0-9-]*) = (.*?)(?:\s+#.*)?$", re.M)
NEED_A_FILE = {"load-library", "init-hook", "work-dir", "stop-key-file"}


def options_of(program):
    text = subprocess.run([peers.needed(program), "--help"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return set(re.findall(r"--([a-z][a-z0-9-]+)", text.split("Examples:")[0])) - NOT_CONFIGURABLE


@pytest.mark.parametrize("program", ["rpc_server", "tracker"])
def test_the_file_names_every_option_and_no_other(program):
    text = (peers.ROOT / "configs" / f"{program}.toml").read_text()
    assert {key for key, _ in LINE.findall(text)} == options_of(program)


@pytest.mark.parametrize("program", ["rpc_server", "tracker"])
def test_the_values_shown_are_accepted(program, tmp_path):
    text = (peers.ROOT / "configs" / f"{program}.toml").read_text()
    lines = [f"{key} = {value}" for key, value in LINE.findall(text) if key not in NEED_A_FILE | {"port", "tracker"}]
    config = tmp_path / "all.toml"
    config.write_text("port = 0\n" + "\n".join(lines) + "\n")
    done = subprocess.run([peers.needed(program), "--config", config, "--check"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("program", ["rpc_server", "tracker"])
def test_an_unknown_key_is_one_line_and_exit_code_2(program, tmp_path):
    config = tmp_path / "typo.toml"
    config.write_text('log-levle = "info"\n')
    done = subprocess.run([peers.needed(program), "--config", config, "--check"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 2
    assert "log-levle" in done.stdout and "log-level" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("unit", ["outpost-tracker.service", "outpost-rpc-server.service"])
def test_the_unit_names_programs_options_that_exist(unit):
    text = (peers.ROOT / "systemd" / unit).read_text()
    command = re.search(r"^ExecStart=(.*)$", text, re.M)[1].split()
    program = command[0].rsplit("/", 1)[1]
    named = {word[2:] for word in command[1:] if word.startswith("--")}
    assert named <= options_of(program) | NOT_CONFIGURABLE
