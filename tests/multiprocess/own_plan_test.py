# SPDX-License-Identifier: Apache-2.0
"""Plans of one's own with several ranks: over shared memory, over TCP, and over both. What can be
asked of them without running them is in tests/python/plan_test.py.
"""

import pytest
from ciuic import plan


def _check(result, ranks: int, transports: str) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == ranks
    assert result.stdout.count(transports) == ranks


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_one_host(ciuic_run, ranks: int) -> None:
    _check(ciuic_run(ranks, "own_plans.py", "all"), ranks, "['shm']")


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_tcp(ciuic_run, ranks: int) -> None:
    _check(ciuic_run(ranks, "own_plans.py", "all", CIUIC_TRANSPORT="tcp"), ranks, "['tcp']")


@pytest.mark.slow
def test_two_hosts_of_two(ciuic_run) -> None:
    _check(ciuic_run(4, "own_plans.py", "all", "--hosts", "2"), 4, "['shm', 'tcp']")


def test_plans_that_differ_are_a_mismatch(ciuic_run) -> None:
    result = ciuic_run(3, "own_plans.py", "differ")
    assert result.returncode == 0, result.stdout + result.stderr
    told = [line for line in result.stdout.splitlines() if "mismatch: " in line]
    assert len(told) == 3
    assert all("all_reduce" in line for line in told)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_wrong_plans_are_refused_before_anything_is_sent(ciuic_run, transport: str) -> None:
    result = ciuic_run(3, "own_plans.py", "wrong", CIUIC_TRANSPORT=transport)
    _check(result, 3, "['tcp']" if transport == "tcp" else "['shm']")


def test_plans_from_files(ciuic_run, tmp_path) -> None:
    path = tmp_path / "plan.json"
    plan.export("two_shot", 3, path)
    _check(ciuic_run(3, "own_plans.py", "files", str(path)), 3, "['shm']")
    plan.export("two_shot", 4, path)
    result = ciuic_run(3, "own_plans.py", "files", str(path))
    assert result.returncode != 0
    assert "no plan file for layout 3 was loaded; there are some for 4" in result.stderr
