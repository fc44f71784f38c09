# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a job, in plain words: who died, who is behind, whose calls differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ciuic.trace import words
from ciuic.trace.job import GroupOfRanks, Job, Member
from ciuic.trace.recording import Operation, Recording

_STOPPED = {"T": "is stopped (SIGSTOP, or Ctrl-Z)", "t": "is stopped by a debugger"}

# In the order in which they are told: causes first.
KINDS = (
    "killed",
    "died",
    "stopped",
    "mismatch",
    "left",
    "behind",
    "ended",
    "failed",
    "stuck",
    "message",
    "no_group",
    "missing",
    "incomplete",
    "clocks",
)


@dataclass(frozen=True)
class Finding:
    """One sentence. ``ranks``: whom it is about; ranks of the group where it names one.

    ``waited_ns``: for how long ranks have been in the operation that it names.
    """

    kind: str
    text: str
    group: str = ""
    ranks: tuple[int, ...] = ()
    sequence: int | None = None
    waited_ns: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ranks": list(self.ranks)}


def diagnose(job: Job) -> list[Finding]:
    """All that can be said, the likeliest causes first. Empty: nothing is wrong."""
    found = [*_of_processes(job), *_of_clocks(job)]
    for group in job.groups:
        found += _of_group(group)
    return sorted(found, key=lambda finding: KINDS.index(finding.kind))


def operation_words(sequence: int, operation: Operation) -> str:
    """``operation 17 (all_reduce, float32, 1048576 elements, sum)``."""
    if not operation.is_known:
        return f"operation {sequence}"
    if operation.is_message:
        return operation.call()
    call = operation.call()
    name, _, rest = call.partition("(")
    return f"operation {sequence} ({', '.join(filter(None, [name, rest.removesuffix(')')]))})"


# ---- processes ----


def _of_processes(job: Job) -> Iterator[Finding]:
    for recording in job.recordings:
        who = _name(recording)
        rank = (recording.world_rank,) if recording.world_rank >= 0 else ()
        if recording.state in _STOPPED and recording.exit_code is None:
            text = f"{who} {_STOPPED[recording.state]}, {_whereabouts(recording)}"
            yield Finding("stopped", text, ranks=rank)
        if (how := _end_of(recording)) is not None:
            text = f"{who} {how}, {_whereabouts(recording)}"
            yield Finding(_kind_of_end(recording), text, ranks=rank)
        if not recording.groups:
            text = f"{who} has joined no group: it is still joining its first one, or could not"
            yield Finding("no_group", text, ranks=rank)
        if recording.groups_lost:
            text = f"{who} had {recording.groups_lost} groups more than can be recorded at once"
            yield Finding("incomplete", text, ranks=rank)


def _end_of(recording: Recording) -> str | None:
    """How the process ended, where it did not end well."""
    if recording.exit_code is not None:
        bad = recording.exit_code != 0 or _has_open(recording)
        return words.exit_of(recording.exit_code) if bad else None
    return "has ended" if recording.state in ("X", "Z") and _has_open(recording) else None


def _kind_of_end(recording: Recording) -> str:
    if recording.exit_code is not None and recording.exit_code > 128:
        return "killed"
    # After an error of a group a process ends because of it.
    failed = any(group.failed_ns is not None for group in recording.groups)
    return "ended" if failed else "died"


def _name(recording: Recording) -> str:
    if recording.world_rank < 0:
        return recording.who
    return f"rank {recording.world_rank} ({recording.who})"


def _has_open(recording: Recording) -> bool:
    closed = {group.number for group in recording.groups if group.closed_ns is not None}
    each = (*recording.operations, *recording.messages)
    return any(o.is_open and o.group not in closed for o in each)


def _whereabouts(recording: Recording) -> str:
    """Where a process was when it was last seen."""
    names = {group.number: group.name for group in recording.groups}
    several = len(set(names.values())) > 1
    each = sorted((*recording.operations, *recording.messages), key=lambda o: o.called_ns or 0)
    known = [o for o in each if o.is_known and o.group in names]
    if not known:
        return "before it called any operation"
    within = [o for o in known if not o.has_ended]
    last = within[0] if within else known[-1]
    of = f' of group "{names[last.group]}"' if several else ""
    place = f"{operation_words(last.sequence, last)}{of}"
    if within:
        return f"in {place}"
    if last.status != "ok":
        return f"in {place} when its group failed"
    return f"after {place}{_ago(recording, last.ended_ns)}"


def _ago(recording: Recording, then_ns: int | None) -> str:
    if then_ns is None:
        return ""
    return f", which ended {words.seconds(recording.seen_ns - then_ns)} before it was last seen"


def _of_clocks(job: Job) -> Iterator[Finding]:
    names = {job.host_of(r): r.host for r in reversed(job.recordings)}
    for host, by_ns in job.corrections_ns.items():
        direction = "behind" if by_ns > 0 else "ahead of"
        first = names[job.host_of(job.recordings[0])]
        text = (
            f"the clock of {names[host]} is {words.seconds(abs(by_ns))} {direction} that of "
            f"{first}, by what must have come first; times were moved by as much"
        )
        yield Finding("clocks", text)


# ---- groups ----


def _of_group(group: GroupOfRanks) -> Iterator[Finding]:
    yield from _missing(group)
    yield from _mismatch(group)
    yield from _failures(group)
    waiting = _first_open(group)
    if waiting is not None:
        yield from _of_open(group, waiting)
    yield from _messages(group)


def _missing(group: GroupOfRanks) -> Iterator[Finding]:
    missing = group.missing
    if missing:
        verb = words.is_or_are(missing, "was", "were")
        text = f"{group.title} has {group.size} ranks; {words.ranks(missing)} {verb} not recorded"
        yield Finding("missing", text, group.title, tuple(missing))


def _mismatch(group: GroupOfRanks) -> Iterator[Finding]:
    for sequence in group.sequences():
        by_call: dict[str, list[int]] = {}
        fingerprints = set()
        for rank, operation in group.calls(sequence).items():
            by_call.setdefault(operation.call(), []).append(rank)
            fingerprints.add(operation.fingerprint)
        ranks: list[int] = []
        if len(by_call) > 1:
            # The fewest are the ones to look at.
            in_order = sorted(by_call.items(), key=lambda item: (len(item[1]), item[1]))
            ranks = [rank for _, of_call in in_order[:-1] for rank in of_call]
            parts = [f"{words.ranks(who)} called {call}" for call, who in in_order[:-1]]
            call, who = in_order[-1]
            others = "the others" if len(who) > 1 and not group.missing else words.ranks(who)
            text = f"operation {sequence}: {', '.join(parts)}, {others} {call}"
        elif len(fingerprints) > 1:
            ranks = list(group.calls(sequence))
            text = (
                f"operation {sequence}: {words.ranks(ranks)} made the same call, but chose "
                "differently how to carry it out; do they run the same version?"
            )
        if ranks:
            yield Finding("mismatch", text, group.title, tuple(ranks), sequence)
            return  # what follows follows from it


def _failures(group: GroupOfRanks) -> Iterator[Finding]:
    by_text: dict[str, list[int]] = {}
    for rank, member in group.members.items():
        if member.facts.failed_ns is not None:
            by_text.setdefault(f"{member.facts.status}: {member.facts.text}", []).append(rank)
    for text, ranks in by_text.items():
        said = f"{group.title} failed on {words.ranks(ranks)} with {text}"
        yield Finding("failed", said, group.title, tuple(ranks))


def _first_open(group: GroupOfRanks) -> int | None:
    """The first operation that some rank has called and that has not ended there."""
    return min(
        (
            sequence
            for member in group.members.values()
            if member.facts.closed_ns is None or member.facts.failed_ns is not None
            for sequence, operation in member.operations.items()
            if operation.is_known and operation.is_open
        ),
        default=None,
    )


def _messages(group: GroupOfRanks) -> Iterator[Finding]:
    """Of each rank the send or recv that has waited longest."""
    for rank, member in group.members.items():
        if member.facts.closed_ns is not None and member.facts.failed_ns is None:
            continue
        waiting = [
            (_until(member, message) - message.called_ns, message)
            for message in member.messages
            if message.is_known and message.is_open and message.called_ns is not None
        ]
        if not waiting:
            continue
        longest, message = max(waiting, key=lambda each: each[0])
        was = "was" if member.facts.failed_ns is not None else "has been"
        text = f"rank {rank} {was} in {message.call()} for {words.seconds(longest)}"
        if member.facts.failed_ns is not None:
            text += " when the group ended"
        if len(waiting) > 1:
            text += f", and in {len(waiting) - 1} more"
        text += _of_peer(group, rank, message)
        ranks = (rank,) if message.root < 0 else (rank, message.root)
        yield Finding("message", text, group.title, ranks, None, longest)


def _of_peer(group: GroupOfRanks, rank: int, message: Operation) -> str:
    """What the other rank has called that this one might wait for."""
    peer = group.members.get(message.root)
    if peer is None:
        return ""
    other = "recv" if message.name == "send" else "send"
    calls = [m for m in peer.messages if m.is_known and m.name == other and m.root in (rank, -1)]
    open_ones = [call for call in calls if call.is_open]
    if open_ones:
        return f"; rank {message.root} is in {open_ones[0].call()}"
    if not calls:
        return f"; rank {message.root} has called no {other} for it"
    return f"; rank {message.root} last called {calls[-1].call()}, which has ended"


def _until(member: Member, operation: Operation) -> int:
    """Until when the rank is known to have been in the operation."""
    if operation.ended_ns is not None:
        return operation.ended_ns
    if member.facts.failed_ns is not None:
        return member.facts.failed_ns
    return member.seen_ns


def _of_open(group: GroupOfRanks, sequence: int) -> Iterator[Finding]:
    calls = group.calls(sequence)
    waiting = [rank for rank, operation in calls.items() if operation.is_open]
    longest = max(
        (
            _until(group.members[rank], calls[rank]) - called
            for rank in waiting
            if (called := calls[rank].called_ns) is not None
        ),
        default=0,
    )
    absent = [
        rank
        for rank, member in group.members.items()
        if rank not in calls and member.last_call < sequence
    ]
    over = any(group.members[rank].facts.failed_ns is not None for rank in waiting)
    for ranks in _alike(group, absent):
        left = group.members[ranks[0]].facts.closed_ns is not None
        text = _behind(group, ranks, sequence, calls[waiting[0]], waiting, longest, over)
        kind = "left" if left else "behind"
        yield Finding(kind, text, group.title, tuple(ranks), sequence, longest)
    if not absent and len(waiting) == len(calls) and not group.missing:
        yield _stuck(group, sequence, calls, longest, over)
    elif not absent:
        yield _ended_on_some(group, sequence, calls, waiting, longest, over)


def _alike(group: GroupOfRanks, ranks: list[int]) -> list[list[int]]:
    """Ranks of which the same can be said: where they are, and whether they left or failed."""
    by_place: dict[tuple[object, ...], list[int]] = {}
    for rank in ranks:
        member = group.members[rank]
        last = member.operations.get(member.last_call)
        place = (
            member.last_call,
            last is not None and last.has_ended and last.status,
            member.facts.closed_ns is not None,
            member.facts.failed_ns is not None,
        )
        by_place.setdefault(place, []).append(rank)
    return list(by_place.values())


def _behind(
    group: GroupOfRanks,
    ranks: list[int],
    sequence: int,
    operation: Operation,
    waiting: list[int],
    longest_ns: int,
    over: bool,
) -> str:
    facts = group.members[ranks[0]].facts
    what = operation_words(sequence, operation)
    time = words.seconds(longest_ns)
    who = words.ranks(ranks)
    if facts.closed_ns is not None and facts.failed_ns is None:
        its = words.is_or_are(ranks, "its communicator", "their communicators")
        head = f"{who} closed {its} and did not call {what}"
    else:
        have = "had" if over else words.is_or_are(ranks, "has", "have")
        head = f"{who} {have} not called {what}"
    if over:
        was = words.is_or_are(waiting, "was", "were")
        head += f", which {words.ranks(waiting)} {was} in for {time} until the group ended"
    else:
        have = words.is_or_are(waiting, "has", "have")
        head += f", which {words.ranks(waiting)} {have} been in for {time}"
    return f"{head}; {_last_of([group.members[rank] for rank in ranks])}"


def _last_of(members: list[Member]) -> str:
    """``its last was 16 (broadcast, …), which ended 12.4 s ago``. The same operation for all."""
    one = len(members) == 1
    its, it_has = ("its", "it has") if one else ("their", "they have")
    most = "" if one else "at most "
    last = members[0].last_call
    if last < 0:
        ended = [s for member in members for s, o in member.operations.items() if o.has_ended]
        if not ended:
            joined = max(member.seen_ns - member.facts.joined_ns for member in members)
            it = "it" if one else "they"
            return f"{it_has} called none since {it} joined, {most}{words.seconds(joined)} ago"
        return f"{its} last was operation {max(ended)}"
    of_all = [(member, member.operations[last]) for member in members]
    operation = of_all[0][1]
    text = f"{its} last was {operation_words(last, operation).removeprefix('operation ')}"
    if not operation.has_ended:
        since = [m.seen_ns - o.called_ns for m, o in of_all if o.called_ns is not None]
        how_long = f" for {most}{words.seconds(max(since))}" if since else ""
        return f"{text}, which {it_has} been in{how_long}"
    ago = [m.seen_ns - o.ended_ns for m, o in of_all if o.ended_ns is not None]
    if not ago:
        return f"{text}, which has ended"
    how = "ended" if operation.status == "ok" else f"ended with {operation.status}"
    return f"{text}, which {how} {most}{words.seconds(max(ago))} ago"


def _last_to_call(group: GroupOfRanks, calls: dict[int, Operation]) -> str:
    times = {
        rank: operation.called_ns + group.members[rank].recording.realtime_offset_ns
        for rank, operation in calls.items()
        if operation.called_ns is not None
    }
    if len(times) < 2:
        return ""
    last = max(times, key=lambda rank: times[rank])
    after = words.seconds(times[last] - min(times.values()))
    return f"; the last to call it was rank {last}, {after} after the first"


def _stuck(
    group: GroupOfRanks, sequence: int, calls: dict[int, Operation], longest_ns: int, over: bool
) -> Finding:
    ranks = list(calls)
    what = operation_words(sequence, calls[ranks[0]])
    queued = [rank for rank, operation in calls.items() if operation.started_ns is None]
    verb = "had called" if over else "have called"
    text = f"all ranks {verb} {what}, {words.seconds(longest_ns)} before "
    text += "the group ended" if over else "they were last seen"
    text += _last_to_call(group, calls)
    if queued:
        text += f"; on {words.ranks(queued)} it waited its turn behind earlier operations"
    return Finding("stuck", text, group.title, tuple(ranks), sequence, longest_ns)


def _ended_on_some(
    group: GroupOfRanks,
    sequence: int,
    calls: dict[int, Operation],
    waiting: list[int],
    longest_ns: int,
    over: bool,
) -> Finding:
    what = operation_words(sequence, calls[waiting[0]])
    be = "was" if over else "is"
    text = f"{what} {be} open on {words.ranks(waiting)}, for {words.seconds(longest_ns)}"
    done = [rank for rank in calls if rank not in waiting]
    if done:
        text += f", and has ended on {words.ranks(done)}"
    text += _last_to_call(group, calls)
    return Finding("stuck", text, group.title, tuple(waiting), sequence, longest_ns)
