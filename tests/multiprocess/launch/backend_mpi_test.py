# SPDX-License-Identifier: Apache-2.0
"""``backend="mpi"`` under the ``mpiexec`` of MPICH, with the ABI of MPI 5, and of Open MPI, by
mpi4py: the same programs that the native backend runs, and what is MPI's alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHERS = ["mpich", "openmpi"]

# What a context and its operations do, with every dtype and op against a reference.
QUICK = ["operations.py", "messages.py", "calls_together.py", "objects.py"]
ALL = [*QUICK, "dtypes.py", "exchanges.py", "groups_of_groups.py", "parameters.py"]


@pytest.fixture
def suite(mpiexec, programs: Path):
    """Runs programs under a launcher, and checks that all ranks have come to their end."""

    def run(name: str, ranks: int, *arguments: str, **variables: str) -> None:
        command = (sys.executable, str(programs / "suite.py"), *arguments)
        result = mpiexec(name, ranks, *command, CIUIC_BACKEND="mpi", **variables)
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stdout.count("suite is good") == ranks, result.stdout + result.stderr

    return run


@pytest.mark.parametrize("name", LAUNCHERS)
def test_all_operations(suite, name: str) -> None:
    suite(name, 2, "mpi", *ALL)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_four_ranks(suite, name: str) -> None:
    suite(name, 4, "mpi", *QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_four_ranks_at_length(suite, name: str) -> None:
    suite(name, 4, "mpi", *ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_more_elements_than_mpi_counts(suite, mpi_library, name: str) -> None:
    """As with 2^31 elements and more, and with staging for less than an operation's."""
    large = ["operations.py", "dtypes.py", "exchanges.py"]
    variables = {"CIUIC_BUFFER_SIZE": "16K", "MPI4PY_LIBMPI": mpi_library(name)}
    suite(name, 3, "--most", "20000", "mpi", *large, **variables)


def test_calls_are_compared_where_that_is_asked_for(suite) -> None:
    suite("mpich", 2, "mpi", "dtypes.py", "calls_together.py", CIUIC_CHECK="1")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_arrays_on_a_gpu(suite, fakes: dict[str, str], name: str) -> None:
    """They are staged through the host, as for the native backend, in pieces."""
    suite(name, 2, "--device", "0", "mpi", *QUICK, CIUIC_BUFFER_SIZE="1M", **fakes)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_arrays_on_a_gpu_at_length(suite, fakes: dict[str, str], name: str) -> None:
    suite(name, 2, "--device", "0", "mpi", "dtypes.py", "exchanges.py", **fakes)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_what_is_mpis_alone(mpiexec, mpi_library, programs: Path, name: str) -> None:
    """Communicators of mpi4py, orders of ranks, what describe() says, and refusals."""
    command = (sys.executable, str(programs / "mpi_alone.py"))
    result = mpiexec(name, 4, *command, MPI4PY_LIBMPI=mpi_library(name))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 4, result.stdout + result.stderr


@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_a_program_with_less_than_all_threads(
    mpiexec, mpi_library, programs: Path, level: str
) -> None:
    command = (sys.executable, str(programs / "mpi_threads.py"), level)
    result = mpiexec("mpich", 2, *command, MPI4PY_LIBMPI=mpi_library("mpich"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("kind", "error", "words", "traced"),
    [
        (
            "late",
            "TimeoutError",
            ["all_reduce", "rank 1 has not called it", "end this process"],
            "rank 1 had not called operation 1 (all_reduce, float64, 10 elements, sum), which",
        ),
        (
            "differs",
            "MismatchError",
            ["rank 0 called broadcast", "root 1", "root 0"],
            "operation 1: rank 0 called broadcast(float64, 10 elements, root 1), rank 1 broadcast(",
        ),
        (
            "checked",
            "MismatchError",
            ["10 elements, sum", "11 elements, sum"],
            "operation 1: rank 0 called all_reduce(float64, 10 elements, sum), rank 1 all_reduce(",
        ),
        (
            "message",
            "MismatchError",
            ["expects 80 bytes", "rank 1 sent 40"],
            "rank 1 last called send(float64, 5 elements, to rank 0, tag 0), which has ended",
        ),
    ],
)
def test_errors(
    mpiexec, programs: Path, tmp_path: Path, kind: str, error: str, words: list[str], traced: str
) -> None:
    """Each is an error that says what was wrong, and the job then ends by itself."""
    command = (sys.executable, str(programs / "mpi_errors.py"), kind, str(tmp_path))
    dumps = tmp_path / "dumps"
    variables = {"CIUIC_CHECK": "1"} if kind == "checked" else {}
    variables["CIUIC_TRACE_DIR"] = str(dumps)
    result = mpiexec("mpich", 2, *command, CIUIC_BACKEND="mpi", **variables)
    told = json.loads((tmp_path / "rank-0").read_text())
    assert told["error"] == error, told
    for word in words:
        assert word in told["message"], told
    # MPI's end is a failure only where something was left under way in it.
    assert (result.returncode != 0) == ("end this process" in told["message"]), result.stderr
    trace = subprocess.run(
        [sys.executable, "-m", "ciuic", "trace", str(dumps)], capture_output=True, text=True
    )
    assert traced in trace.stdout, trace.stdout + trace.stderr


def test_another_mpi_than_the_launchers(mpiexec, mpi_library, programs: Path) -> None:
    """Open MPI in ranks of MPICH's: each takes itself for alone."""
    command = (sys.executable, str(programs / "mpi_errors.py"), "join")
    library = mpi_library("openmpi")
    result = mpiexec("mpich", 2, *command, MPI4PY_LIBMPI=library, WITH_MPI4PY="1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("PMI started 2 ranks") == 2, result.stdout + result.stderr
    assert result.stdout.count("Open MPI v") == 2
    assert result.stdout.count("another MPI than the one that launched") == 2


def test_ranks_that_no_mpi_started(environment, programs: Path) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "ciuic",
            "run",
            "-n",
            "2",
            "--",
            str(programs / "mpi_errors.py"),
            "join",
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("start them with `mpiexec -n 2 python ...`") == 2, result.stdout


def test_no_library(mpiexec, programs: Path, tmp_path: Path) -> None:
    command = (sys.executable, str(programs / "mpi_errors.py"), "join")
    library = str(tmp_path / "libmpi_abi.so.1")
    result = mpiexec("mpich", 2, *command, CIUIC_MPI_LIBRARY=library, WITHOUT_WHEEL="1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(f"{library}: cannot open shared object file") == 2
    assert result.stdout.count("pip install mpich") == 2, result.stdout
