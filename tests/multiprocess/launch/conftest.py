# SPDX-License-Identifier: Apache-2.0
"""Launchers that people use, started for real: two MPIs of PyPI's, and Debian's Slurm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE))

import slurm as slurm_of_one_machine  # noqa: E402

ROOT = _HERE.parents[2]

_HELLO = ("hello_all_reduce", "CIUIC_BUILD", ROOT / "build" / "release")


def missing(why: str) -> None:
    """Skips; under ALL_LAUNCHERS, where nothing may be missing, fails."""
    if os.environ.get("ALL_LAUNCHERS"):
        pytest.fail(f"ALL_LAUNCHERS is set, and there is {why}")
    pytest.skip(why)


@pytest.fixture
def or_skip() -> Callable[[str], None]:
    """:func:`missing`."""
    return missing


@pytest.fixture(scope="session")
def hello_programs() -> dict[str, list[str]]:
    """The smallest example in both languages; C++'s from build/release, or CIUIC_BUILD."""
    name, variable, build = _HELLO
    compiled = Path(os.environ.get(variable) or build) / "examples" / name
    if not compiled.exists():
        missing(f"no {compiled} (make build)")
    return {
        "c++": [str(compiled)],
        "python": [sys.executable, str(ROOT / "examples" / f"{name}.py")],
    }


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_of_one_machine.Slurm]:
    why = slurm_of_one_machine.why_not()
    if why is not None:
        if "root" in why:
            pytest.skip(why)
        missing(why)
    folder = tmp_path_factory.mktemp("slurm") / "one"
    made = slurm_of_one_machine.Slurm(folder)
    yield made
    made.stop()
