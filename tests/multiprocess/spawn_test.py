# SPDX-License-Identifier: Apache-2.0
"""``ciuic.spawn``, from a script and from what has no file, as a notebook."""

import re
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
