# SPDX-License-Identifier: Apache-2.0
"""Environments as launchers make them: who a process is by them, and how it meets its peers.

Each file of ``environments/`` says in its head how it came about, and what is to be read from it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from ciuic import _native, rendezvous
from ciuic.errors import UnavailableError

FILES = sorted((Path(__file__).parent / "environments").glob("*.env"))

# Of the places to meet that the environment names: the first that is there is taken.
PLACES = ("CIUIC_STORE", "MASTER_ADDR", "PMI_FD", "PMIX_NAMESPACE")


class Recorded(NamedTuple):
    meets_by: str
    launcher: str  # "none"
    numbers: tuple[int, ...]  # rank, size, local rank, local size
    variables: dict[str, str]


def read(path: Path) -> Recorded:
    head, variables = {}, {}
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            name, _, text = line[2:].partition(": ")
            head[name] = text
        else:
            name, _, value = line.partition("=")
            variables[name] = value.replace("\\n", "\n")
    launcher, *pairs = head["is"].split(", ")
    numbers = tuple(int(number) for pair in pairs for number in pair.split(" of "))
    return Recorded(head["meets by"], launcher, numbers, variables)


def test_all_launchers_are_there() -> None:
    assert {read(path).launcher for path in FILES} == {
        *("none", "torchrun", "Open MPI", "PMI", "Slurm", "PMIx", "Kubernetes Indexed Job"),
        *("SkyPilot", "RANK and WORLD_SIZE"),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_who_it_is(path: Path) -> None:
    recorded = read(path)
    if recorded.launcher == "none":
        with pytest.raises(UnavailableError, match="Looked for"):
            _native.read_launcher(recorded.variables)
        return
    found = _native.read_launcher(recorded.variables)
    numbers = (found.rank, found.size, found.local_rank, found.local_size)
    assert (found.launcher, numbers) == (recorded.launcher, recorded.numbers)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_how_it_meets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = read(path)
    first = next((name for name in PLACES if name in recorded.variables), "nothing")
    assert first == recorded.meets_by
    if recorded.launcher in ("none", "PMIx", "RANK and WORLD_SIZE"):
        return  # no rank, one that only a launcher that is there can tell, and one that is refused
    for name in [name for name in os.environ if name.startswith(("CIUIC_", "MASTER_"))]:
        monkeypatch.delenv(name)
    for name, value in recorded.variables.items():
        monkeypatch.setenv(name, value)
    asked: list[str] = []
    monkeypatch.setattr(_native, "open_store", lambda url, timeout_ms: asked.append("CIUIC_STORE"))
    monkeypatch.setattr(
        rendezvous, "_torchrun_store", lambda rank, timeout_s: asked.append("MASTER_ADDR")
    )
    meeting = rendezvous.find_meeting(None, None, None, 1.0)
    assert (meeting.rank, meeting.world_size) == recorded.numbers[:2]
    of_python = recorded.meets_by in ("CIUIC_STORE", "MASTER_ADDR")
    assert asked == ([recorded.meets_by] if of_python else [])
