# SPDX-License-Identifier: Apache-2.0
"""Hostile traffic at every listener while ranks join: they join all the same, and say so."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TIMEOUT_S = 240
DESCRIPTORS = "128"  # a rank may have; the strangers have as many as they like


class Strangers:
    """``programs/strangers.py``, one for each process that is attacked."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._started: list[subprocess.Popen[str]] = []

    def attack(self, pid: int) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(self._program), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def strangers(programs: Path) -> Iterator[Strangers]:
    made = Strangers(programs / "strangers.py")
    yield made
    made.end()


def attacked(process: "subprocess.Popen[str]", kinds: set[str]) -> None:
    """Returns when listeners of all these kinds are under attack."""
    assert process.stdout is not None
    left = set(kinds)
    while left:
        line = process.stdout.readline()
        assert line, f"never found a listener of kind {left}"
        left -= {line.split()[2]}


def join_under_attack(
    processes, strangers: Strangers, variables: Callable[[int], dict[str, str]]
) -> list[dict]:
    """Four ranks on two hosts; rank 0 is under attack before the others come."""
    ranks = []
    for rank in range(4):
        ranks.append(
            processes.start(
                "join.py",
                json.dumps({"timeout_s": 120, "rank": rank, "world_size": 4}),
                variables={**variables(rank), "CIUIC_HOST_ID": f"host-{rank % 2}"},
                prefix=["prlimit", f"--nofile={DESCRIPTORS}"],
            )
        )
        attack = strangers.attack(ranks[-1].pid)
        if rank == 0:
            attacked(attack, {"tcp", "unix"})
    outputs = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks]
    described = []
    for rank, output in enumerate(outputs):
        lines = output.strip().splitlines()
        assert lines and lines[-1] == f"joined {rank} 4", output
        described.append(json.loads(lines[-2]))
        assert described[-1]["hosts"] == 2
        assert sorted(described[-1]["transports"]) == ["shm", "tcp"]
        # Nobody waited for a stranger's time to run out, let alone for the group's.
        assert described[-1]["join_ms"] < 60_000
    assert "turned away while the group joined" in outputs[0]
    return described


@pytest.mark.slow
def test_at_the_listeners_of_a_join(processes, strangers: Strangers, tmp_path: Path) -> None:
    def variables(rank: int) -> dict[str, str]:
        return {"CIUIC_STORE": f"file://{tmp_path}/store"}

    described = join_under_attack(processes, strangers, variables)
    assert described[0]["strangers"] > 0


@pytest.mark.slow
def test_at_the_store_of_a_launcher(processes, strangers: Strangers, job) -> None:
    made = job(4)
    attacked(strangers.attack(os.getpid()), {"tcp"})
    wanted = ("CIUIC_STORE", "CIUIC_SECRET")
    join_under_attack(
        processes, strangers, lambda rank: {name: made.variables(rank)[name] for name in wanted}
    )
