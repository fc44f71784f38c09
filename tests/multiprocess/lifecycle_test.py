# SPDX-License-Identifier: Apache-2.0
"""A group's life in a process: made and dropped, forked from, interrupted, used by many threads,
and left without ``close``.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

TIMEOUT_S = 240

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "tcp"])


class Ranks:
    """Processes of one job without a launcher, which would end the others with the first."""

    def __init__(self, processes, job, program: str, ranks: int, *arguments: str, **more: str):
        made = job(ranks)
        self.each = [
            processes.start(
                program, *arguments, variables={**made.variables(rank), **more}, stdin=True
            )
            for rank in range(ranks)
        ]

    def read_until(self, rank: int, text: str) -> str:
        """The line with ``text``. Fails with all the output where it does not come."""
        pipe = self.each[rank].stdout
        assert pipe is not None
        before = ""
        for line in pipe:
            if text in line:
                return line
            before += line
        raise AssertionError(f"rank {rank} ended before {text!r}:\n{before}")

    def tell(self, rank: int, line: str) -> None:
        pipe = self.each[rank].stdin
        assert pipe is not None
        pipe.write(line + "\n")
        pipe.flush()

    def finish(self, rank: int) -> str:
        """All that is left of its output, when it has ended well."""
        pipe = self.each[rank].stdout
        assert pipe is not None
        text = pipe.read()  # communicate() would lose what was read ahead
        self.each[rank].wait(TIMEOUT_S)
        assert self.each[rank].returncode == 0, text
        return text


@pytest.fixture
def start(processes, job) -> Callable[..., Ranks]:
    return lambda *arguments, **more: Ranks(processes, job, *arguments, **more)


def check(result: "subprocess.CompletedProcess[str]", ranks: int, text: str = "all good") -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(text) == ranks, result.stdout + result.stderr


@TRANSPORTS
def test_dropped_groups_leave_nothing(ciuic_run, transport: str) -> None:
    result = ciuic_run(2, "groups_that_are_dropped.py", "30", "500", CIUIC_TRANSPORT=transport)
    check(result, 2, "as before")


@pytest.mark.slow
@TRANSPORTS
def test_data_loader_workers(ciuic_run, transport: str) -> None:
    check(ciuic_run(2, "data_loader.py", CIUIC_TRANSPORT=transport), 2)


@pytest.mark.parametrize("victim", [0, 1])
@TRANSPORTS
def test_a_child_does_not_hide_its_parents_death(start, transport: str, victim: int) -> None:
    ranks = start("outlived_by_child.py", 2, str(victim), CIUIC_TRANSPORT=transport)
    child = int(ranks.read_until(victim, "child").split()[1])
    try:
        ranks.read_until(1 - victim, "waiting")
        os.kill(ranks.each[victim].pid, signal.SIGKILL)
        assert "all good" in ranks.finish(1 - victim)
    finally:
        os.kill(child, signal.SIGKILL)


@TRANSPORTS
def test_children_inherit_no_connection(ciuic_run, transport: str) -> None:
    check(ciuic_run(2, "inherited.py", CIUIC_TRANSPORT=transport), 2)


@pytest.mark.parametrize("way", ["all_reduce", "barrier", "wait", "several", "recv", "coalesce"])
@TRANSPORTS
def test_interrupt_ends_the_group(start, state_of, transport: str, way: str) -> None:
    ranks = start("interrupted_call.py", 3, way, CIUIC_TRANSPORT=transport)
    ranks.read_until(0, "waiting")
    while state_of(ranks.each[0].pid) != "S":  # nothing but the call sleeps
        time.sleep(0.01)
    os.kill(ranks.each[0].pid, signal.SIGINT)
    ranks.read_until(0, "interrupted")
    ranks.read_until(2, "ended")
    ranks.tell(1, "go")
    for rank in range(3):
        assert "all good" in ranks.finish(rank)


@TRANSPORTS
def test_threads(ciuic_run, transport: str) -> None:
    check(ciuic_run(2, "threads.py", CIUIC_TRANSPORT=transport), 2)


@pytest.mark.slow
def test_threads_of_three_ranks(ciuic_run) -> None:
    check(ciuic_run(3, "threads.py"), 3)


# ---- the end without close ----

WAYS = ["end", "exit", "os_exit", "fork", "spawn"]


@pytest.mark.parametrize("calls_more", ["", "later"])
@pytest.mark.parametrize("way", WAYS)
@TRANSPORTS
def test_who_did_its_part_may_go(
    start, state_of, transport: str, way: str, calls_more: str
) -> None:
    """Rank 1 is stopped in the last operation until rank 0 is gone, and still gets its result."""
    if (transport, way, calls_more) == ("tcp", "os_exit", "later"):
        pytest.skip("a kernel resets what has come for a process that left without reading it")
    arguments = ["leave_early.py", 2, way, "20000", *calls_more.split()]
    ranks = start(*arguments, CIUIC_TRANSPORT=transport)
    while state_of(ranks.each[1].pid) != "T":
        assert ranks.each[1].poll() is None, ranks.finish(1)
        time.sleep(0.01)
    ranks.finish(0)
    os.kill(ranks.each[1].pid, signal.SIGCONT)
    text = ranks.finish(1)
    assert "received" in text
    assert "then lost: " in text


@pytest.mark.parametrize("way", ["close", "end", "os_exit", "kill"])
@TRANSPORTS
def test_gone_before_the_first_use(start, transport: str, way: str) -> None:
    """Links are connected when first needed; who is gone by then is named, without a time-out."""
    ranks = start("gone_before_first_use.py", 3, way, CIUIC_TRANSPORT=transport)
    for rank in (0, 2):
        ranks.read_until(rank, "joined")
    assert ranks.each[1].wait(TIMEOUT_S) == (-signal.SIGKILL if way == "kill" else 0)
    for rank in (0, 2):
        ranks.tell(rank, "go")
    for rank in (0, 2):
        assert "all good" in ranks.finish(rank)
