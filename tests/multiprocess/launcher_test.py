# SPDX-License-Identifier: Apache-2.0
"""``ciuic run``: exit codes, output, signals, and that nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 240


@pytest.mark.parametrize(("way", "code"), [("error", 1), ("exit", 7), ("signal", 137)])
def test_a_rank_that_fails(ciuic_run, all_end, way: str, code: int) -> None:
    result = ciuic_run(3, "ranks_that_fail.py", way)
    assert result.returncode == code, result.stdout + result.stderr
    assert "ciuic run: rank 1 (process" in result.stderr
    assert ("signal SIGKILL" if way == "signal" else f"exit code {code}") in result.stderr
    all_end(result.stdout)
    if way == "error":
        # Its report is whole, and comes before those of the ranks that only lost it.
        reports = [m.start() for m in re.finditer("Traceback", result.stderr)]
        whole = "[1] ValueError: the cause\n[1] of it all\n"
        assert whole in result.stderr
        first = result.stderr[reports[0] - 4 : reports[0]]
        assert first == "[1] ", result.stderr
        between = result.stderr[reports[0] : result.stderr.index(whole)].splitlines()
        assert all(line.startswith("[1] ") for line in between[1:]), result.stderr


class Running:
    """A launcher under way, whose ranks have all said that they are ready."""

    def __init__(self, way: str, programs: Path, environment) -> None:
        command = [sys.executable, "-m", "ciuic", "run", "-n", "2", "--"]
        self.process = subprocess.Popen(
            [*command, str(programs / "ranks_that_fail.py"), way],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # what a terminal would send goes to the launcher alone
        )
        self.text = ""
        assert self.process.stdout is not None
        while self.text.count("ready") < 2:
            line = self.process.stdout.readline()
            assert line, self.text
            self.text += line
        self.pid_of_rank_0 = int(re.findall(r"\[0\] pids (\d+)", self.text)[0])

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("way", ["wait", "deaf"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signal_to_the_launcher(
    number: signal.Signals, way: str, programs, environment, all_end
) -> None:
    unrelated = subprocess.Popen(["sleep", "1000"])
    running = Running(way, programs, environment)
    try:
        running.process.send_signal(number)
        running.process.wait(TIMEOUT_S)
        all_end(running.text)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert running.process.returncode == expected
        assert unrelated.poll() is None
    finally:
        running.end()
        unrelated.kill()
        unrelated.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_one_rank(number: signal.Signals, programs, environment, all_end) -> None:
    running = Running("wait", programs, environment)
    try:
        os.kill(running.pid_of_rank_0, number)
        assert running.process.wait(TIMEOUT_S) == 128 + number
        all_end(running.text)
    finally:
        running.end()


def test_output(ciuic_run, tmp_path) -> None:
    program = tmp_path / "talk.py"
    program.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "print('out', rank, *sys.argv[1:])\n"
        "print('err', rank, file=sys.stderr)\n"
        "sys.stdout.write('no end ' + rank)\n"
    )
    result = ciuic_run(2, str(program), "-n", "--init", "x")
    assert result.returncode == 0
    for rank in range(2):
        assert f"[{rank}] out {rank} -n --init x\n" in result.stdout
        assert f"[{rank}] no end {rank}\n" in result.stdout
        assert f"[{rank}] err {rank}\n" in result.stderr
    assert "err" not in result.stdout
    raw = ciuic_run(2, str(program), options=["--raw"])
    assert sorted(line for line in raw.stdout.splitlines() if "out" in line)[0] == "out 0"


def test_environment_and_input(tmp_path, environment) -> None:
    program = tmp_path / "show.py"
    program.write_text(
        "import os, sys\n"
        "names = ['RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK']\n"
        "print('V', *[os.environ[n] for n in names], repr(sys.stdin.read()))\n"
        "assert os.environ['CIUIC_STORE'].startswith('tcp://127.0.0.1:')\n"
        "assert 'OMPI_COMM_WORLD_RANK' not in os.environ\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "ciuic", "run", "--nproc_per_node=2", "--standalone", str(program)],
        env=environment(OMPI_COMM_WORLD_RANK="5"),
        input="given",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "[0] V 0 2 0 2 0 'given'",
        "[1] V 1 2 1 2 0 ''",
    ]


def test_modules_and_executables(ciuic_run, tmp_path, environment) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "ciuic", "run", "-n", "1", "-m", "json.tool", "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0
    assert "usage" in result.stdout
    for program in ("no_such_program", "no_such_file.py"):
        result = subprocess.run(
            [sys.executable, "-m", "ciuic", "run", "-n", "2", program],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert result.returncode == 2
        assert program in result.stderr
        assert "Traceback" not in result.stderr


def test_interrupt_ends_a_blocking_call(programs, environment) -> None:
    """Ctrl-C in an operation whose peer does not come: the rank sees KeyboardInterrupt."""
    command = [sys.executable, "-m", "ciuic", "run", "-n", "2", "--"]
    launcher = subprocess.Popen(
        [*command, str(programs / "interrupted_operation.py")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert launcher.stdout is not None
    text = ""
    while "waiting" not in text:
        line = launcher.stdout.readline()
        assert line, text
        text += line
    launcher.send_signal(signal.SIGINT)
    text += launcher.communicate(timeout=TIMEOUT_S)[0]
    assert launcher.returncode == 130, text
    assert "rank 0 was interrupted" in text, text
