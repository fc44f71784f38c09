# SPDX-License-Identifier: Apache-2.0
"""Whose time-out holds: the call's, else the group's, else the variable's, else the default.

The moment itself is tested under the simulator's clock; here, that it is the right one, that
nothing ends before it, and that all operations honour it.
"""

import json
import re
from pathlib import Path

import pytest

CALLS = [
    name + suffix
    for name in ("all_reduce", "reduce", "broadcast", "all_gather", "barrier")
    for suffix in ("", "_async")
]

LEVELS = {  # of the call, the group and the variable in seconds; None: not said
    "call": (0.3, 90, 80),
    "call of a group that says none": (0.3, None, 80),
    "group": (None, 2.5, 80),
    "variable": (None, None, 2.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_the_nearest_one_holds(processes, tmp_path: Path, level: str) -> None:
    of_call, of_group, variable = LEVELS[level]
    # Rank 1 waits for the next join while rank 0 waits for it.
    groups = [{} if of_group is None else {"timeout_s": of_group}, {"timeout_s": 200}]
    calls = CALLS if of_call is not None else ["all_reduce", "barrier_async"]
    common = {"store": f"file://{tmp_path}/store", "world_size": 2}
    ranks = [
        processes.start(
            "timeouts.py",
            json.dumps({**common, **groups[rank], "rank": rank}),
            json.dumps({} if of_call is None else {"timeout_s": of_call}),
            json.dumps(calls),
            variables={"CIUIC_TIMEOUT_MS": str(round(variable * 1000))},
            stdin=True,
        )
        for rank in range(2)
    ]
    output = ranks[0].communicate(timeout=240)[0]
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [one["call"] for one in told] == calls, output
    of_all = variable if of_group is None else of_group
    holds = of_all if of_call is None else of_call
    for one in told:
        assert one["said"].startswith("TimeoutError: "), one
        assert f"within {round(holds * 1000)} ms" in one["said"], one
        assert "rank 1" in one["said"], one
        assert one["after_s"] >= holds, one
        assert one["timeout_ms"] == round(of_all * 1000), one


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_call_that_allows_more_waits_for_a_peer_that_is_late(
    processes, job, transport: str
) -> None:
    made = job(2)
    first, late = (
        processes.start(
            "late.py",
            variables={**made.variables(rank), "CIUIC_TRANSPORT": transport},
            stdin=rank == 1,
        )
        for rank in range(2)
    )
    told = ""
    while not re.search(r"rank 0 has waited ([2-9]|\d\d+)\.\d s for barrier", told):
        line = first.stdout.readline()
        assert line, told
        told += line
    late.stdin.close()
    late.stdin = None
    outputs = processes.outputs()
    assert [process.returncode for process in (first, late)] == [0, 0], [told, *outputs]
    assert [output.split()[-2:] for output in outputs] == [["met", "0"], ["met", "1"]]


def test_the_default_is_shown(processes) -> None:
    alone = processes.start("join.py", json.dumps({"world_size": 1, "rank": 0}), variables={})
    described = json.loads(alone.communicate(timeout=240)[0].splitlines()[-2])
    assert described["timeout_ms"] == 300_000
