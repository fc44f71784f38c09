# SPDX-License-Identifier: Apache-2.0
"""``mpiexec`` of MPICH and of Open MPI, as their wheels have it: PMI-1 and PMIx."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("language", ["python", "c++"])
@pytest.mark.parametrize("name", ["mpich", "openmpi"])
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
