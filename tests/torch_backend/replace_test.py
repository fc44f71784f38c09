# SPDX-License-Identifier: Apache-2.0
"""``ciuic run --replace gloo``: programs of libraries that take no other name, unchanged."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "take_over.py"
TIMEOUT_S = 240


@functools.cache
def trained(environment, library: str, *options: str) -> dict:
    """What rank 0 of two says; each run is made once."""
    done = subprocess.run(
        [sys.executable, "-m", "ciuic", "run", *options, "-n", "2", str(PROGRAM), library],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "carrier" in line]
    said: dict = json.loads(line.removeprefix("[0] "))
    return said


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch_alone", "accelerate", "lightning", "transformers"])
def test_the_group_is_ours_and_goes_by_the_old_name(environment, library: str) -> None:
    if library != "torch_alone":
        pytest.importorskip(library)
    said = trained(environment, library, "--replace", "gloo")
    assert (said["carrier"], said["says"]) == ("ciuic", "gloo")


@pytest.mark.slow
def test_without_it_the_group_is_gloos_and_the_weights_are_the_same(environment) -> None:
    gloos = trained(environment, "torch_alone")
    assert (gloos["carrier"], gloos["says"]) == ("gloo", "gloo")
    ours = trained(environment, "torch_alone", "--replace", "gloo")
    assert ours["weights"] == pytest.approx(gloos["weights"], rel=1e-5)
