# SPDX-License-Identifier: Apache-2.0
"""Everything with one rank: each collective is a local copy, and every way to start works. The
operations by themselves are in operations_test.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("threads.py", []),
        ("groups_that_are_dropped.py", ["20", "100"]),
        pytest.param("data_loader.py", [], marks=pytest.mark.slow),
    ],
)
def test_programs(ciuic_run, program: str, arguments: list[str]) -> None:
    result = ciuic_run(1, program, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_with_torch_distributed(ciuic_run, tmp_path: Path) -> None:
    program = tmp_path / "alone.py"
    program.write_text(
        "import ciuic, torch\n"
        "assert torch.distributed.get_world_size() == 1\n"
        "x = ciuic.all_reduce(torch.arange(3.0))\n"
        "print(x.tolist(), ciuic.default_context().world_size)\n"
    )
    result = ciuic_run(1, str(program), options=["--init"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "[0.0, 1.0, 2.0] 1\n"


@pytest.mark.parametrize(
    "program",
    [
        EXAMPLES / "hello_all_reduce.py",
        *[
            pytest.param(path, marks=pytest.mark.slow, id=path.stem)
            for path in sorted((EXAMPLES / "five_ways").glob("*.py"))
        ],
    ],
)
def test_examples(ciuic_run, program: Path) -> None:
    result = ciuic_run(1, str(program))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_spawn(environment, tmp_path: Path, method: str) -> None:
    program = tmp_path / "alone.py"
    program.write_text(
        "import ciuic, numpy\n"
        "def work(rank):\n"
        "    x = numpy.arange(3.0)\n"
        "    ciuic.all_reduce(x)\n"
        "    ciuic.barrier()\n"
        "    return rank, x.tolist(), ciuic.default_context().world_size\n"
        "if __name__ == '__main__':\n"
        f"    print(ciuic.spawn(work, nprocs=1, start_method={method!r}))\n"
    )
    result = subprocess.run(
        [sys.executable, str(program)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[(0, [0.0, 1.0, 2.0], 1)]"


def test_as_any_launcher_starts_it(environment, programs) -> None:
    """One rank needs no place to meet."""
    for variables in (
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"PMI_RANK": "0", "PMI_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"},
    ):
        result = subprocess.run(
            [sys.executable, str(programs / "join.py")],
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "joined 0 1" in result.stdout
