# SPDX-License-Identifier: Apache-2.0
"""Every operation beyond the reductions, and what is made of several calls or of some ranks: over
shared memory, over TCP, and over both. ``programs/`` has what the ranks do.
"""

import pytest

PROGRAMS = ["exchanges.py", "messages.py", "calls_together.py", "groups_of_groups.py", "objects.py"]


def _check(result, ranks: int) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == ranks, result.stdout + result.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_shared_memory(ciuic_run, program: str) -> None:
    _check(ciuic_run(3, program, CIUIC_TRANSPORT="shm"), 3)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_tcp(ciuic_run, program: str) -> None:
    _check(ciuic_run(3, program, CIUIC_TRANSPORT="tcp"), 3)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_hosts_of_two(ciuic_run, program: str) -> None:
    _check(ciuic_run(4, program, "--hosts", "2"), 4)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_rank(ciuic_run, program: str) -> None:
    _check(ciuic_run(1, program), 1)
