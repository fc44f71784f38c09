# SPDX-License-Identifier: Apache-2.0
"""Who arrives last at operations, how often, by how much: what a job's steady state waits for."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from ciuic.trace.job import GroupOfRanks, Job

# Of each kind, the first of a run are left out: programs warm up.
_WARM_UP = 0.1


@dataclass(frozen=True)
class Lateness:
    """Of all operations of one kind that all ranks of a group called. Microseconds."""

    group: str
    call: str
    operations: int
    duration_us: float
    """Median of the time from the last call to the last end."""
    wait_us: float
    """Median of the time from the first call to the last."""
    worst_us: float
    worst_sequence: int
    last_rank: int
    """Who was last most often,"""
    last_share: float
    """in this share of the operations."""
    late_by_rank_us: tuple[float, ...]
    """By rank: mean time after the first call."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "late_by_rank_us": list(self.late_by_rank_us)}


def lateness(job: Job) -> list[Lateness]:
    """One row a group and kind of call, the one with the most time waited in all first."""
    rows = []
    for group in job.groups:
        if group.size < 2 or group.missing:
            continue
        by_call: dict[str, list[int]] = {}
        for sequence in group.sequences():
            calls = group.calls(sequence)
            words = {operation.call() for operation in calls.values()}
            complete = len(calls) == group.size and len(words) == 1
            if complete and all(o.called_ns is not None for o in calls.values()):
                by_call.setdefault(words.pop(), []).append(sequence)
        for call, sequences in by_call.items():
            steady = sequences[int(len(sequences) * _WARM_UP) :]
            rows.append(_row(job, group, call, steady))
    return sorted(rows, key=lambda row: -row.wait_us * row.operations)


def _row(job: Job, group: GroupOfRanks, call: str, sequences: list[int]) -> Lateness:
    waits: dict[int, float] = {}
    durations = []
    last: Counter[int] = Counter()
    late: dict[int, float] = dict.fromkeys(range(group.size), 0.0)
    for sequence in sequences:
        called = {}
        ended = []
        for rank, operation in group.calls(sequence).items():
            recording = group.members[rank].recording
            assert operation.called_ns is not None
            called[rank] = job.time_ns(recording, operation.called_ns)
            if operation.ended_ns is not None and not operation.is_open:
                ended.append(job.time_ns(recording, operation.ended_ns))
        first = min(called.values())
        latest = max(called, key=lambda rank: called[rank])
        last[latest] += 1
        waits[sequence] = (called[latest] - first) / 1e3
        if len(ended) == group.size:
            durations.append((max(ended) - called[latest]) / 1e3)
        for rank, when in called.items():
            late[rank] += (when - first) / 1e3
    worst = max(waits, key=lambda sequence: waits[sequence])
    last_rank, times = last.most_common(1)[0]
    return Lateness(
        group=group.title,
        call=call,
        operations=len(sequences),
        duration_us=statistics.median(durations) if durations else 0.0,
        wait_us=statistics.median(waits.values()),
        worst_us=waits[worst],
        worst_sequence=worst,
        last_rank=last_rank,
        last_share=times / len(sequences),
        late_by_rank_us=tuple(late[rank] / len(sequences) for rank in range(group.size)),
    )
