# SPDX-License-Identifier: Apache-2.0
"""Shared tensors between processes: the same bits, nothing that is written too late, and all of it
given back. ``programs/shared_tensors.py`` says what the ranks do.
"""

import pytest


def _check(result, ranks: int) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == ranks, result.stdout + result.stderr


@pytest.mark.parametrize(
    "part", ["same_bits", "scribbling", "subgroups", "forked", "resources", "abandoned"]
)
def test_three_ranks(ciuic_run, part: str) -> None:
    _check(ciuic_run(3, "shared_tensors.py", "--part", part, CIUIC_TRANSPORT="shm"), 3)


@pytest.mark.parametrize("part", ["same_bits", "scribbling"])
def test_two_ranks(ciuic_run, part: str) -> None:
    _check(ciuic_run(2, "shared_tensors.py", "--part", part, CIUIC_TRANSPORT="shm"), 2)


def test_tensors_of_torch(ciuic_run) -> None:
    pytest.importorskip("torch")
    _check(ciuic_run(2, "shared_tensors.py", "--part", "torch_tensors"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["scribbling", "subgroups", "resources"])
def test_five_ranks(ciuic_run, part: str) -> None:
    _check(ciuic_run(5, "shared_tensors.py", "--part", part), 5)


def test_over_tcp_they_are_as_any_other(ciuic_run) -> None:
    result = ciuic_run(2, "shared_tensors.py", "--part", "scribbling", CIUIC_TRANSPORT="tcp")
    _check(result, 2)


def test_a_peer_dies_while_they_are_read(processes, job) -> None:
    made = job(3)
    ranks = [
        processes.start("shared_tensors.py", "--part", "death", variables=made.variables(rank))
        for rank in range(3)
    ]
    outputs = processes.outputs()
    assert [rank.returncode for rank in ranks] == [0, 0, -9], outputs
    assert all("all good" in output for output in outputs[:2])
