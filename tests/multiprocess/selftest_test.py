# SPDX-License-Identifier: Apache-2.0
"""``ciuic selftest`` itself: it passes here, sees what is planted, and needs no NumPy.

What is planted stands in a ``sitecustomize.py``, which Python imports by itself in every rank.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 240

WRONG_BIT = """
import ciuic, ciuic.collectives, os

right = ciuic.collectives.all_reduce

def all_reduce(x, op=ciuic.ReduceOp.SUM, context=None, **more):
    right(x, op, context, **more)
    if str(x.dtype) == "float16" and op is ciuic.ReduceOp.AVG and x.size > 7 and context.rank == 1:
        x.view("uint8")[600] ^= 1
    return x

if os.environ.get("RANK"):
    ciuic.all_reduce = all_reduce
"""

CRASH = """
import ciuic, os

def reduce(x, dst, op, context):
    if os.environ["RANK"] == "2" and op is ciuic.ReduceOp.MAX and x.size == 7:
        os.kill(os.getpid(), 9)
    return right(x, dst, op, context)

if os.environ.get("RANK"):
    right, ciuic.reduce = ciuic.reduce, reduce
"""

NO_ARRAYS = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "torch", "ml_dtypes"):
            raise ImportError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def selftest(environment, tmp_path: Path):
    """Runs it with a ``sitecustomize.py``; gives exit code and output."""

    def run(*words: str, plant: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        settings = environment(**variables)
        if plant:
            (tmp_path / "sitecustomize.py").write_text(plant)
            paths = [str(tmp_path), settings.get("PYTHONPATH", "")]
            settings["PYTHONPATH"] = ":".join(path for path in paths if path)
        return subprocess.run(
            [sys.executable, "-m", "ciuic", "selftest", *words],
            env=settings,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    return run


@pytest.mark.slow
def test_this_installation(selftest) -> None:
    """In the environment of a job of somebody else, which is no concern of its."""
    result = selftest("--quick", "--json", CIUIC_TRANSPORT="shm", RANK="7", WORLD_SIZE="9")
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert (found["failed"], found["left_out"], found["failures"]) == (0, 0, [])
    transports = {each["name"]: each for each in found["transports"]}
    for name in ("shm", "tcp", "mixed"):
        assert transports[name]["offered"], transports[name]
        assert transports[name]["checks"] > 600
    assert transports["mixed"]["group"]["transports"] == ["shm", "tcp"]
    for each in transports.values():
        assert bool(each["reason"]) == (not each["offered"])
    assert "no RDMA" in transports["rdma"]["reason"]
    assert all(finding["good"] for finding in found["machine"])
    assert found["checks"] > 5 * 600 and found["dtypes"] == 17


def test_one_wrong_bit_on_one_rank(selftest) -> None:
    result = selftest("--only", "tcp/all_reduce/*/avg", "--only", "shm/barrier", plant=WRONG_BIT)
    assert result.returncode == 1, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    failed = [line for line in lines if line.startswith("failed: ")]
    names = ["tcp/all_reduce/float16/avg/4x100001", "tcp/all_reduce/float16/avg/2x100001"]
    assert [line.split()[1] for line in failed] == names
    assert " on rank 1: element 300 of 100001 is " in failed[0]
    commands = [line.strip() for line in lines if line.startswith(" ")]
    assert commands == [f"ciuic selftest --only {name}" for name in names]
    assert ", 2 failed, " in lines[-1]
    again = selftest("--only", names[0], plant=WRONG_BIT)
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1].startswith("selftest: 1 checks, 1 failed, ")


def test_a_rank_that_is_killed(selftest) -> None:
    """Its case has failed, on it; the others are made all the same."""
    words = ["--only", "shm/reduce/bool", "--only", "shm/all_reduce/bool", "--json"]
    result = selftest(*words, plant=CRASH)
    assert result.returncode == 1, result.stdout + result.stderr
    found = json.loads(result.stdout)
    names = [each["name"] for each in found["failures"]]
    assert names == ["shm/reduce/bool/max/4x7", "shm/reduce/bool/max/2x7"]
    assert {each["rank"] for each in found["failures"]} == {2}
    assert "signal 9" in found["failures"][0]["text"]
    assert found["left_out"] == 0


def test_without_numpy_and_torch(selftest) -> None:
    result = selftest("--quick", "--only", "shm", plant=NO_ARRAYS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "plain memory (17 dtypes; NumPy is not installed)" in result.stdout
    assert ", 0 failed, " in result.stdout.splitlines()[-1]
