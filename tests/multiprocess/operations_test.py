# SPDX-License-Identifier: Apache-2.0
"""All operations with several ranks: over shared memory, over TCP, and over both."""

import pytest


def _check(result) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") > 0


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_host(ciuic_run, ranks: int) -> None:
    result = ciuic_run(ranks, "operations.py", "--transports", "shm")
    _check(result)
    assert result.stdout.count("all good") == ranks
    # One line at the start, of rank 0.
    starts = [line for line in result.stderr.splitlines() if " ranks on " in line]
    assert len(starts) == 1
    assert starts[0].startswith("[0] ciuic ")


@pytest.mark.slow
def test_two_hosts_of_two(ciuic_run) -> None:
    _check(ciuic_run(4, "operations.py", "--hosts", "2", "--transports", "shm+tcp"))


@pytest.mark.slow
def test_tcp_alone(ciuic_run) -> None:
    _check(ciuic_run(3, "operations.py", "--transports", "tcp", CIUIC_TRANSPORT="tcp"))


def test_one_rank(ciuic_run) -> None:
    _check(ciuic_run(1, "operations.py"))


@pytest.mark.parametrize("ranks", [1, 3])
def test_parameters(ciuic_run, ranks: int) -> None:
    _check(ciuic_run(ranks, "parameters.py"))
