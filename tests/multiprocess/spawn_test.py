# SPDX-License-Identifier: Apache-2.0
"""``ciuic.spawn``, from a script and from what has no file, as a notebook."""

import re
import signal
import subprocess
import sys

import pytest

TIMEOUT_S = 240


@pytest.mark.parametrize("option", [[], pytest.param(["--torch"], marks=pytest.mark.slow)])
def test_script(programs, environment, option) -> None:
    result = subprocess.run(
        [sys.executable, str(programs / "spawning.py"), *option],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all good" in result.stdout
    assert len(re.findall(r"pid \d+", result.stdout)) == 2


def test_without_a_file(environment) -> None:
    text = (
        "import ciuic, numpy\n"
        "def add(rank):\n"
        "    x = numpy.ones(2)\n"
        "    return float(ciuic.all_reduce(x)[0])\n"
        "print(ciuic.spawn(add, nprocs=2))\n"
    )
    result = subprocess.run(
        [sys.executable, "-"],
        input=text,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[2.0, 2.0]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_the_parent(processes, all_end, number: signal.Signals) -> None:
    """Neither ranks nor what they started are left; Ctrl-C lets them clear up."""
    parent = processes.start("spawning.py", "--stay", variables={})
    assert parent.stdout is not None
    text = parent.stdout.readline() + parent.stdout.readline()
    assert text.count("pids") == 2, text + parent.stdout.read()
    parent.send_signal(number)
    text += parent.communicate(timeout=TIMEOUT_S)[0]
    assert parent.returncode == -number, text
    all_end(text)
    assert len(re.findall(r"rank \d ends", text)) == (2 if number == signal.SIGINT else 0), text
