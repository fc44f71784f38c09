# SPDX-License-Identifier: Apache-2.0
"""Recordings that are made up, for the tests of ``ciuic trace``. Times are nanoseconds."""

from collections.abc import Iterable, Sequence
from typing import Any

from ciuic.trace.job import Job, merge
from ciuic.trace.recording import Group, Operation, Recording

S = 1_000_000_000
MS = 1_000_000
NOW = 100 * S


def operation(
    sequence: int,
    name: str = "all_reduce",
    *,
    at: int | None = None,
    took: int | None = MS,
    group: int = 1,
    **more: Any,
) -> Operation:
    """Called at ``at``, by default a second for each number; ``took`` None: not ended."""
    called = (10 + sequence) * S if at is None else at
    reduces = name in ("all_reduce", "reduce")
    fields: dict[str, Any] = {
        "group": group,
        "sequence": sequence,
        "is_known": True,
        "name": name,
        "algorithm": "ring",
        "dtype": "float32",
        "op": "sum" if reduces else "",
        "root": -1,
        "count": 1048576,
        "bytes": 4194304,
        "fingerprint": 7,
        "called_ns": called,
        "started_ns": called,
        "ended_ns": None if took is None else called + took,
        "has_ended": took is not None,
        "status": "ok",
    }
    return Operation(**{**fields, **more})


def group_of(rank: int, size: int, **more: Any) -> Group:
    fields: dict[str, Any] = {
        "number": 1,
        "id": 5,
        "epoch": 1,
        "job": 9,
        "rank": rank,
        "size": size,
        "name": "default",
        "joined_ns": 5 * S,
        "failed_ns": None,
        "closed_ns": None,
        "status": "ok",
        "text": "",
    }
    return Group(**{**fields, **more})


def recording(
    rank: int, size: int, operations: Iterable[Operation], *, groups: Any = None, **more: Any
) -> Recording:
    fields: dict[str, Any] = {
        "source": f"rank{rank}",
        "pid": 4711 + rank,
        "start_ticks": 1,
        "launch_rank": rank,
        "launch_size": size,
        "boot_id": "boot",
        "host": "node7",
        "library": "0.1.0",
        "ring_events": 4096,
        "written_events": 100,
        "torn_events": 0,
        "groups_lost": 0,
        "realtime_offset_ns": 1_700_000_000 * S,
        "dumped_ns": NOW,
        "state": "S",
        "exit_code": None,
        "groups": (group_of(rank, size),) if groups is None else tuple(groups),
        "operations": tuple(operations),
        "world_rank": rank,
    }
    return Recording(**{**fields, **more})


def job_of(*ranks: Sequence[Operation], **more: Any) -> Job:
    return merge(recording(r, len(ranks), each, **more) for r, each in enumerate(ranks))
