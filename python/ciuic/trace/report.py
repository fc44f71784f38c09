# SPDX-License-Identifier: Apache-2.0
"""What ``ciuic trace`` prints: sentences and a table, or one JSON object."""

from __future__ import annotations

from typing import Any

from ciuic.trace import words
from ciuic.trace.diagnosis import Finding, diagnose
from ciuic.trace.job import GroupOfRanks, Job
from ciuic.trace.lateness import Lateness, lateness


def as_json(job: Job) -> dict[str, Any]:
    """All of it, for machines."""
    return {
        "recordings": [
            {
                "source": r.source,
                "rank": r.world_rank,
                "host": r.host,
                "pid": r.pid,
                "state": r.state,
                "exit_code": r.exit_code,
                "events": r.written_events,
                "torn_events": r.torn_events,
            }
            for r in job.recordings
        ],
        "groups": [
            {
                "name": group.name,
                "epoch": group.epoch,
                "size": group.size,
                "ranks": list(group.members),
                "last_calls": {rank: m.last_call for rank, m in group.members.items()},
            }
            for group in job.groups
        ],
        "findings": [finding.as_dict() for finding in diagnose(job)],
        "lateness": [row.as_dict() for row in lateness(job)],
    }


def sentences(job: Job) -> list[str]:
    """The findings; where there is none, that nothing is wrong, in numbers."""
    found = diagnose(job)
    lines = [_with_group(job, finding) for finding in found]
    if all(finding.kind in ("missing", "clocks", "incomplete") for finding in found):
        lines += [_all_well(group) for group in job.groups]
    return lines


def of_a_hang(job: Job, least_s: float) -> list[str]:
    """Only what may hold a job up: ranks that are stopped, calls that differ, ranks that are behind
    in what others have been in for ``least_s``."""
    return [
        _with_group(job, finding)
        for finding in diagnose(job)
        if finding.kind in ("stopped", "mismatch")
        or (finding.kind in ("behind", "left") and finding.waited_ns >= least_s * 1e9)
    ]


def _with_group(job: Job, finding: Finding) -> str:
    """Names the group, where there are several and the sentence does not say."""
    several = len(job.groups) > 1
    if several and finding.group and finding.group not in finding.text:
        return f"{finding.group}: {finding.text}"
    return finding.text


def _all_well(group: GroupOfRanks) -> str:
    sequences = group.sequences()
    if not sequences:
        return f"{group.title}: no operation has been called"
    return (
        f"{group.title}: all operations that {words.ranks(group.members)} called have ended, the "
        f"last was operation {sequences[-1]}"
    )


def table_rows(rows: list[Lateness]) -> list[tuple[str, ...]]:
    """The lateness table's cells, in the order of :data:`TABLE_HEADS`."""
    return [
        (
            row.group,
            row.call,
            str(row.operations),
            words.seconds(row.duration_us * 1e3),
            words.seconds(row.wait_us * 1e3),
            f"{words.seconds(row.worst_us * 1e3)} ({row.worst_sequence})",
            f"{row.last_rank} ({row.last_share:.0%})",
        )
        for row in rows
    ]


TABLE_HEADS = (
    "group",
    "operation",
    "times",
    "took",
    "waited for the last",
    "at worst (operation)",
    "last is rank",
)
