# SPDX-License-Identifier: Apache-2.0
"""Recordings of several processes, put together: the groups, their ranks, one time for all.

The time of a job is nanoseconds of CLOCK_REALTIME as the first recording's host has it. Processes
of one host share CLOCK_MONOTONIC, so their times agree to the nanosecond. Hosts are put in line by
CLOCK_REALTIME, and where this would let an effect come before its cause (a rank ends an all_reduce
before another one has called it), by the causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ciuic.trace.recording import Group, Operation, Recording

# Nobody can end them before all have called.
_MEET = {
    "all_reduce",
    "all_gather",
    "all_gather_v",
    "barrier",
    "reduce_scatter",
    "reduce_scatter_v",
    "all_to_all",
    "all_to_all_v",
}


@dataclass(frozen=True)
class Member:
    """A rank of a group."""

    recording: Recording
    facts: Group
    operations: dict[int, Operation]
    """By sequence; the oldest may be gone."""
    messages: tuple[Operation, ...] = ()
    """Sends and receives, in the order of their calls."""

    @property
    def last_call(self) -> int:
        """Sequence of the last operation that it has called, -1: none."""
        return max((s for s, o in self.operations.items() if o.is_known), default=-1)

    @property
    def seen_ns(self) -> int:
        return self.recording.seen_ns


@dataclass
class GroupOfRanks:
    """A group, as far as its ranks were recorded."""

    name: str
    epoch: int
    size: int
    members: dict[int, Member] = field(default_factory=dict)
    place: int = 0
    """Among several of the same name and epoch: 1, 2, ... in the order of their joins; else 0."""

    @property
    def title(self) -> str:
        """``group "default"``, with what tells it from others of that name."""
        epoch = f", epoch {self.epoch}" if self.epoch > 1 else ""
        place = f" (no. {self.place}, {self.size} ranks)" if self.place else ""
        return f'group "{self.name}"{epoch}{place}'

    @property
    def missing(self) -> list[int]:
        """Ranks that were not recorded."""
        return [rank for rank in range(self.size) if rank not in self.members]

    def sequences(self) -> list[int]:
        """Of all operations that any rank called, ascending."""
        return sorted(
            {s for m in self.members.values() for s, o in m.operations.items() if o.is_known}
        )

    def calls(self, sequence: int) -> dict[int, Operation]:
        """The ranks' calls of one operation."""
        found = ((rank, m.operations.get(sequence)) for rank, m in sorted(self.members.items()))
        return {rank: each for rank, each in found if each is not None and each.is_known}


@dataclass
class Job:
    """All that was recorded, together."""

    recordings: list[Recording]
    groups: list[GroupOfRanks]
    offsets_ns: dict[str, int]
    """By host (boot id): to be added to its CLOCK_MONOTONIC."""
    corrections_ns: dict[str, int]
    """What of it is not CLOCK_REALTIME's."""

    def time_ns(self, recording: Recording, monotonic_ns: int) -> int:
        """A time of the recording, as the job's."""
        return monotonic_ns + self.offsets_ns[_host_key(recording)]

    def host_of(self, recording: Recording) -> str:
        """What :attr:`offsets_ns` calls its host."""
        return _host_key(recording)


def merge(recordings: Iterable[Recording]) -> Job:
    """Puts them together. Of several of one process the last is taken."""
    latest: dict[tuple[str, int, int], Recording] = {}
    for recording in recordings:
        key = (_host_key(recording), recording.pid, recording.start_ticks)
        if key not in latest or latest[key].seen_ns <= recording.seen_ns:
            latest[key] = recording
    kept = sorted(latest.values(), key=lambda r: (r.world_rank < 0, r.world_rank, r.host, r.pid))
    groups = _groups_of(kept)
    realtime: dict[str, int] = {}
    for recording in sorted(kept, key=lambda r: r.seen_ns):
        realtime[_host_key(recording)] = recording.realtime_offset_ns
    job = Job(kept, groups, realtime, {})
    job.corrections_ns = _corrections(job)
    job.offsets_ns = {
        host: offset + job.corrections_ns.get(host, 0) for host, offset in realtime.items()
    }
    return job


def runs(recordings: Iterable[Recording]) -> list[list[Recording]]:
    """Parts them by time, the earliest first: a directory may hold the dumps of earlier runs, too.

    Recordings are of one run where the times that they tell of overlap, from the first join on.
    """
    found: list[list[Recording]] = []
    until = 0
    for begin, end, recording in sorted(map(_lifetime, recordings), key=lambda each: each[:2]):
        if not found or begin > until:
            found.append([])
        found[-1].append(recording)
        until = max(until, end)
    return found


def _lifetime(recording: Recording) -> tuple[int, int, Recording]:
    offset = recording.realtime_offset_ns
    end = recording.seen_ns
    begin = min((group.joined_ns for group in recording.groups), default=end)
    return min(begin, end) + offset, end + offset, recording


def _host_key(recording: Recording) -> str:
    return recording.boot_id or recording.host


def _groups_of(recordings: Sequence[Recording]) -> list[GroupOfRanks]:
    found: dict[tuple[object, ...], GroupOfRanks] = {}
    for recording in recordings:
        by_group: dict[int, dict[int, Operation]] = {}
        for operation in recording.operations:
            by_group.setdefault(operation.group, {})[operation.sequence] = operation
        messages: dict[int, list[Operation]] = {}
        for message in recording.messages:
            messages.setdefault(message.group, []).append(message)
        for facts in recording.groups:
            # A group of one rank is nobody else's.
            alone = (recording.host, recording.pid, facts.number) if facts.size == 1 else ()
            key = (facts.job, facts.id, facts.epoch, facts.name, facts.size, *alone)
            group = found.setdefault(key, GroupOfRanks(facts.name, facts.epoch, facts.size))
            member = Member(
                recording,
                facts,
                by_group.get(facts.number, {}),
                tuple(messages.get(facts.number, ())),
            )
            group.members.setdefault(facts.rank, member)
    for group in found.values():
        group.members = dict(sorted(group.members.items()))
    first = {id(g): min(m.facts.joined_ns for m in g.members.values()) for g in found.values()}
    groups = sorted(found.values(), key=lambda g: (first[id(g)], -g.size, g.name))
    by_name: dict[tuple[str, int], list[GroupOfRanks]] = {}
    for group in groups:
        by_name.setdefault((group.name, group.epoch), []).append(group)
    for alike in by_name.values():
        for place, group in enumerate(alike, start=1):
            group.place = place if len(alike) > 1 else 0
    return groups


def _corrections(job: Job) -> dict[str, int]:
    """Hosts whose clocks contradict the first one's, and by how much to move them.

    For hosts A and B and an operation in which all ranks meet, each end on one is after each call
    on the other. So B's clock can be behind by no more than the least ``end on B - call on A``, and
    ahead by no more than the least ``end on A - call on B``. Where one of them is negative, the
    middle between the two is taken, or where nothing bounds the other side, just what it needs.
    """
    hosts = list(dict.fromkeys(_host_key(recording) for recording in job.recordings))
    moved: dict[str, int] = {}
    for host in hosts[1:]:
        behind = ahead = None
        for group in job.groups:
            for sequence in group.sequences():
                for a, b in _meetings(job, group, sequence, hosts[0], host):
                    call_a, end_a = a
                    call_b, end_b = b
                    if call_a is not None and end_b is not None:
                        behind = min(end_b - call_a, end_b - call_a if behind is None else behind)
                    if call_b is not None and end_a is not None:
                        ahead = min(end_a - call_b, end_a - call_b if ahead is None else ahead)
        if behind is not None and behind < 0:
            moved[host] = (ahead - behind) // 2 if ahead is not None else -behind
        elif ahead is not None and ahead < 0:
            moved[host] = (ahead - behind) // 2 if behind is not None else ahead
    return moved


_Times = tuple[int | None, int | None]


def _meetings(
    job: Job, group: GroupOfRanks, sequence: int, first: str, second: str
) -> list[tuple[_Times, _Times]]:
    """Of an operation: the last call and the first end on either host, if all ranks meet in it."""
    calls = group.calls(sequence)
    if len({o.name for o in calls.values()} & _MEET) != 1:
        return []
    times: dict[str, list[tuple[int, int | None]]] = {first: [], second: []}
    for rank, operation in calls.items():
        recording = group.members[rank].recording
        host = _host_key(recording)
        if host in times and operation.called_ns is not None:
            end = operation.ended_ns if not operation.is_open else None
            offset = job.offsets_ns[host]
            times[host].append(
                (operation.called_ns + offset, None if end is None else end + offset)
            )
    if not times[first] or not times[second]:
        return []

    def of(host: str) -> _Times:
        ends = [end for _, end in times[host] if end is not None]
        return max(call for call, _ in times[host]), min(ends, default=None)

    return [(of(first), of(second))]
