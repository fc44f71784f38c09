# SPDX-License-Identifier: Apache-2.0
"""The short examples, as their users start them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FIVE_WAYS = sorted((EXAMPLES / "five_ways").glob("*.py"))

# What each prints once, from rank 0, beside the figures.
SAYS = {
    "1_merge": "merging takes",
    "2_overlap": "communication that shows",
    "3_backend": "all_gather gave",
    "4_buffer_size": "buffer_size  64 MiB",
}


def check(result: "subprocess.CompletedProcess[str]", ranks: int, name: str) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(SAYS[name]) == 1, result.stdout
    lines = result.stdout.splitlines()
    assert all(line.startswith("[0] ") for line in lines), result.stdout
    if name in ("1_merge", "2_overlap"):
        assert lines[0].startswith(f"[0] {ranks} ranks, ")
    if name == "3_backend":
        assert f"all_gather gave {[rank * 10 for rank in range(ranks)]}" in result.stdout


def test_none_is_forgotten() -> None:
    assert [path.stem for path in FIVE_WAYS] == sorted(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("program", FIVE_WAYS, ids=lambda path: path.stem)
def test_five_ways(ciuic_run, program: Path) -> None:
    check(ciuic_run(2, str(program)), 2, program.stem)


@pytest.mark.nightly
@pytest.mark.parametrize("program", FIVE_WAYS, ids=lambda path: path.stem)
def test_five_ways_with_more_ranks_than_cores(ciuic_run, program: Path) -> None:
    check(ciuic_run(8, str(program)), 8, program.stem)


def test_hello(ciuic_run) -> None:
    result = ciuic_run(3, str(EXAMPLES / "hello_all_reduce.py"))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}] rank {rank} of 3: [6.0, 12.0, 18.0]" for rank in range(3)
    ]


def test_own_plan(ciuic_run) -> None:
    result = ciuic_run(3, str(EXAMPLES / "own_plan.py"))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}] rank {rank} of 3: [6.0, 12.0, 18.0]" for rank in range(3)
    ]


def test_own_plan_is_right_on_other_layouts() -> None:
    command = [sys.executable, "-m", "ciuic", "plan", "--module", str(EXAMPLES / "own_plan.py")]
    for layout in ("1", "3+2"):
        result = subprocess.run(
            [*command, "--layout", layout, "--prove", "--simulate", "3"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        assert "proved: " in result.stdout


def test_hello_by_itself_says_what_is_missing(environment) -> None:
    """No launcher: one clear error, which names ways to start it."""
    result = subprocess.run(
        [sys.executable, os.fspath(EXAMPLES / "hello_all_reduce.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ciuic.errors.UnavailableError: ")
    assert "ciuic run -n" in last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "last"),
    [
        (["ddp_spawn.py"], r"ciuic, 2 ranks: loss (\S+) -> (\S+)"),
        (["rpc_model_parallel.py"], r"ciuic: loss (\S+) -> (\S+) in 100 steps, 3 workers"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_programs_that_start_their_ranks(environment, program: list[str], last: str) -> None:
    pytest.importorskip("torch")
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / program[0]), *program[1:]],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.fullmatch(last, result.stdout.splitlines()[-1])
    assert found, result.stdout
    assert float(found[2]) < 0.9 * float(found[1])
