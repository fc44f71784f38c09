# SPDX-License-Identifier: Apache-2.0
"""The recordings as Chrome's trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing.

A process a rank, a track a group (several where operations overlap), a slice an operation. An arrow
goes from the rank that called an operation last to each rank that had to wait for it.
"""

from __future__ import annotations

from typing import Any

from ciuic.trace.job import GroupOfRanks, Job, Member
from ciuic.trace.recording import Operation

_TRACKS_A_GROUP = 64


def chrome_trace(job: Job) -> dict[str, Any]:
    """The JSON object. Times are microseconds since the first event."""
    starts = [
        job.time_ns(r, operation.called_ns)
        for r in job.recordings
        for operation in (*r.operations, *r.messages)
        if operation.called_ns is not None
    ]
    zero = min(starts, default=0)
    ids = {id(r): place for place, r in enumerate(job.recordings)}
    events: list[dict[str, Any]] = []
    for recording in job.recordings:
        number = ids[id(recording)]
        whose = f"rank {recording.world_rank}" if recording.world_rank >= 0 else "no rank"
        named: dict[str, dict[str, Any]] = {
            "process_name": {"name": f"{whose} ({recording.who})"},
            "process_sort_index": {"sort_index": number},
        }
        for name, value in named.items():
            events.append({"ph": "M", "pid": number, "tid": 0, "name": name, "args": value})
    for place, group in enumerate(job.groups):
        for rank, member in group.members.items():
            pid = ids[id(member.recording)]
            events += _slices(job, group, rank, member, pid, place * _TRACKS_A_GROUP + 1, zero)
    return {
        "traceEvents": sorted(events, key=lambda event: (event["ph"] != "M", event.get("ts", 0))),
        "displayTimeUnit": "ms",
        "otherData": {"realtime_ns_of_zero": str(zero), "made_by": "ciuic trace"},
    }


def _slices(
    job: Job, group: GroupOfRanks, rank: int, member: Member, pid: int, tid: int, zero: int
) -> list[dict[str, Any]]:
    """One rank's operations of one group, as complete slices that do not overlap within a track."""
    events: list[dict[str, Any]] = []
    free_at: list[int] = []  # by track
    of_group = [*member.operations.values(), *member.messages]
    for operation in sorted(of_group, key=lambda o: (o.called_ns or 0, o.sequence)):
        sequence = operation.sequence
        if operation.called_ns is None:
            continue
        begin = operation.called_ns
        end = operation.ended_ns
        if end is None:
            end = begin if operation.has_ended else member.seen_ns
        end = max(end, begin)
        track = next((t for t, at in enumerate(free_at) if at <= begin), len(free_at))
        track = min(track, _TRACKS_A_GROUP - 1)
        if track == len(free_at):
            free_at.append(end)
            suffix = f" ({track})" if track else ""
            name = {"name": f'group "{group.name}", rank {rank}{suffix}'}
            meta = {"ph": "M", "pid": pid, "tid": tid + track, "name": "thread_name", "args": name}
            events.append(meta)
        free_at[track] = end
        ts = (job.time_ns(member.recording, begin) - zero) / 1e3
        duration = (end - begin) / 1e3
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tid + track,
                "ts": ts,
                "dur": duration,
                "name": operation.name or "operation",
                "cat": "message" if operation.is_message else "operation",
                "args": _arguments(group, sequence, operation),
            }
        )
        if not operation.is_message:
            events += _arrow(job, group, rank, sequence, operation, pid, tid + track, ts, duration)
    return events


def _arguments(group: GroupOfRanks, sequence: int, operation: Operation) -> dict[str, Any]:
    queued = None
    if operation.started_ns is not None and operation.called_ns is not None:
        queued = (operation.started_ns - operation.called_ns) / 1e3
    return {
        "group": group.name,
        "epoch": group.epoch,
        "sequence": sequence,
        "call": operation.call(),
        "algorithm": operation.algorithm,
        "bytes": operation.bytes,
        "queued_us": queued,
        "status": operation.status if operation.has_ended else "open",
    }


def _arrow(
    job: Job,
    group: GroupOfRanks,
    rank: int,
    sequence: int,
    operation: Operation,
    pid: int,
    tid: int,
    ts: float,
    duration: float,
) -> list[dict[str, Any]]:
    """From the last to call to the others' ends."""
    calls = group.calls(sequence)
    times = {
        each: job.time_ns(group.members[each].recording, o.called_ns)
        for each, o in calls.items()
        if o.called_ns is not None
    }
    if len(times) < 2 or len(times) < group.size or operation.is_open:
        return []
    last = max(times, key=lambda each: times[each])
    same = {"name": "waits for the last", "cat": "lateness", "pid": pid, "tid": tid}
    place = job.groups.index(group)
    if rank != last:
        # At that moment, inside of this rank's slice.
        own = times[rank]
        at = min(max(0.0, (times[last] - own) / 1e3), duration * 0.999)
        return [{"ph": "f", "bp": "e", "id": f"{place}.{sequence}.{rank}", "ts": ts + at, **same}]
    return [
        {"ph": "s", "id": f"{place}.{sequence}.{each}", "ts": ts, **same}
        for each in times
        if each != last and not calls[each].is_open
    ]
