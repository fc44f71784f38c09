# SPDX-License-Identifier: Apache-2.0
"""``srun`` and ``sbatch`` in a Slurm of one machine: each way to meet, in both languages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import slurm as of_slurm

RANKS = 4
LAUNCH = Path(__file__).resolve().parents[3] / "examples" / "launch"


@pytest.fixture
def srun(slurm, environment):
    """``srun -n RANKS`` with more words, to its end."""

    def run(*words: str, **variables: str):
        return of_slurm.run(slurm, ["srun", "-n", str(RANKS), *words], environment(**variables))

    return run


@pytest.mark.parametrize("language", ["python", "c++"])
@pytest.mark.parametrize("meets", ["pmi2", "pmix", "file"])
def test_srun(srun, hello_programs, tmp_path: Path, meets: str, language: str) -> None:
    if meets == "file":
        words, variables = [], {"CIUIC_STORE": f"file://{tmp_path}/store"}
    else:
        words, variables = [f"--mpi={meets}"], {}
    result = srun(*words, *hello_programs[language], **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    sums = "[10, 20, 30]" if language == "c++" else "[10.0, 20.0, 30.0]"
    expected = [f"rank {rank} of {RANKS}: {sums}" for rank in range(RANKS)]
    assert sorted(result.stdout.splitlines()) == expected


@pytest.mark.parametrize(("mpi", "store"), [("pmi2", "PMI-2"), ("pmix", "PMIx")])
def test_how_they_meet(srun, programs: Path, mpi: str, store: str) -> None:
    result = srun(f"--mpi={mpi}", sys.executable, str(programs / "met.py"))
    assert result.returncode == 0, result.stdout + result.stderr
    met = sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda m: m["rank"])
    assert [each["rank"] for each in met] == list(range(RANKS))
    assert [each["local_rank"] for each in met] == list(range(RANKS))
    assert {each["ranks"] for each in met} == {RANKS}
    assert {each["store"] for each in met} == {store}


@pytest.mark.parametrize("language", ["python", "c++"])
def test_plain_srun_says_what_is_missing(srun, hello_programs, language: str) -> None:
    result = srun(*hello_programs[language])
    assert result.returncode != 0
    for words in (
        "no place to meet",
        *("CIUIC_STORE (not set)", "MASTER_PORT (not set", "PMI_FD (not set)", "PMIX_NAMESPACE"),
        *("srun --mpi=pmi2", "--mpi=pmix", "CIUIC_STORE=file:///"),
    ):
        assert words in result.stderr, result.stderr
