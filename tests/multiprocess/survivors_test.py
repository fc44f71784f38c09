# SPDX-License-Identifier: Apache-2.0
"""What is left of a group goes on: errors that name a rank, abort() and shrink() from Python."""

import pytest


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_rank_is_named_and_the_others_go_on(processes, job, transport: str) -> None:
    made = job(3)
    ranks = [
        processes.start(
            "survivors.py", variables={**made.variables(rank), "CIUIC_TRANSPORT": transport}
        )
        for rank in range(3)
    ]
    outputs = processes.outputs()
    assert [rank.returncode for rank in ranks] == [0, 0, -9], outputs
    assert sorted(output.split()[-2:] for output in outputs[:2]) == [
        ["survived", "0"],
        ["survived", "1"],
    ]
