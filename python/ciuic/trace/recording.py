# SPDX-License-Identifier: Apache-2.0
"""One process's flight recorder: read from a file, a living process, or a launcher's memory.

Reading a process needs neither its help nor its leave to stop it: its memory is a descriptor in
``/proc/PID/fd``. So a process that hangs, or was stopped, is read like any other.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ciuic import _native
from ciuic.errors import InvalidArgumentError, UnavailableError

SUFFIX = ".ciuic-trace"
MEMORY_NAME = "ciuic-trace"

_LARGEST_BYTES = 1 << 29  # of a recorder's memory: four million events, and what goes with them

# Operations of which each rank has a count of its own.
_COUNTS_DIFFER = ("all_to_all_v", "gather_v", "scatter_v")


@dataclass(frozen=True)
class Group:
    """What one rank knows of a group. Times are the host's CLOCK_MONOTONIC."""

    number: int
    id: int
    epoch: int
    job: int
    rank: int
    size: int
    name: str
    joined_ns: int
    failed_ns: int | None
    closed_ns: int | None
    status: str
    text: str


@dataclass(frozen=True)
class Operation:
    """One operation on one rank. ``group``: number of a :class:`Group` of the same recording."""

    group: int
    sequence: int
    is_known: bool
    name: str
    algorithm: str
    dtype: str
    op: str
    root: int
    count: int
    bytes: int
    fingerprint: int
    called_ns: int | None
    started_ns: int | None
    ended_ns: int | None
    has_ended: bool
    status: str
    is_message: bool = False
    """A send or recv: ``sequence`` counts this rank's alone, ``root`` is the other rank (-1: any)
    and ``fingerprint`` the tag."""

    @property
    def tag(self) -> int | None:
        """Of a message; ``None``: any."""
        return None if self.fingerprint == 0xFFFFFFFF else self.fingerprint

    @property
    def is_open(self) -> bool:
        """Called, and not ended as it should: under way, or cut off by an error of the group."""
        return not self.has_ended or self.status != "ok"

    def call(self) -> str:
        """``all_reduce(float32, 1024 elements, sum)``; what the ranks' calls must share."""
        if not self.is_known:
            return "an operation"
        if self.name == "barrier":
            return "barrier"
        words = [self.dtype]
        if self.name not in _COUNTS_DIFFER:
            words.append(f"{self.count} element{'' if self.count == 1 else 's'}")
        words += [self.op] if self.op else []
        if self.is_message:
            peer = f"rank {self.root}" if self.root >= 0 else "any rank"
            words.append(f"{'to' if self.name == 'send' else 'from'} {peer}")
            words.append("any tag" if self.tag is None else f"tag {self.tag}")
            return f"{self.name}({', '.join(words)})"
        words += [f"root {self.root}"] if self.root >= 0 else []
        return f"{self.name or 'an operation'}({', '.join(words)})"


@dataclass(frozen=True)
class Recording:
    """What one process recorded."""

    source: str
    pid: int
    start_ticks: int
    launch_rank: int
    launch_size: int
    boot_id: str
    host: str
    library: str
    ring_events: int
    written_events: int
    torn_events: int
    groups_lost: int
    realtime_offset_ns: int
    dumped_ns: int | None
    state: str
    exit_code: int | None
    groups: tuple[Group, ...] = ()
    operations: tuple[Operation, ...] = ()
    messages: tuple[Operation, ...] = ()
    """Sends and receives between two ranks."""
    world_rank: int = field(default=-1)
    """The launcher's rank; where it says none, that in the largest group."""

    @property
    def seen_ns(self) -> int:
        """Until when it tells of the process."""
        if self.dumped_ns is not None:
            return self.dumped_ns
        each = (*self.operations, *self.messages)
        times = [t for o in each for t in (o.called_ns, o.started_ns, o.ended_ns)]
        times += [t for g in self.groups for t in (g.joined_ns, g.failed_ns, g.closed_ns)]
        return max((t for t in times if t is not None), default=0)

    @property
    def who(self) -> str:
        """``process 4711 on node7``."""
        return f"process {self.pid} on {self.host}" if self.host else f"process {self.pid}"


def parse(data: bytes, source: str) -> Recording:
    """What the bytes of a recorder's memory, or of a dump, say.

    Raises:
        ciuic.InvalidArgumentError: They are no such thing; the message begins with ``source``.
    """
    try:
        parsed = _native.parse_trace(data)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{source}: {error}") from None
    process = _only(Recording, parsed["process"])
    groups = tuple(Group(**_only(Group, group)) for group in parsed["groups"])
    calls = [Operation(**_only(Operation, each)) for each in parsed["operations"]]
    operations = tuple(call for call in calls if not call.is_message)
    messages = tuple(call for call in calls if call.is_message)
    world_rank = process["launch_rank"]
    if world_rank < 0 and groups:
        world_rank = max(groups, key=lambda group: group.size).rank
    return Recording(
        source=source,
        groups=groups,
        operations=operations,
        messages=messages,
        world_rank=world_rank,
        **process,
    )


def _only(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    known = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in known}


def of_file(path: str | os.PathLike[str]) -> Recording:
    """A dump.

    Raises:
        ciuic.InvalidArgumentError: It cannot be read, or is no dump.
    """
    try:
        if os.path.getsize(path) > _LARGEST_BYTES:
            raise InvalidArgumentError(f"{path}: too large for a flight recorder's dump")
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
    return parse(data, str(path))


def of_paths(paths: Iterable[str | os.PathLike[str]]) -> list[Recording]:
    """The dumps, and those in directories (by their suffix)."""
    found = []
    for path in paths:
        if os.path.isdir(path):
            inside = sorted(Path(path).glob(f"*{SUFFIX}"))
            if not inside:
                raise InvalidArgumentError(f"{path}: there is no *{SUFFIX} in this directory")
            found += inside
        elif os.fspath(path).isdecimal() and not os.path.exists(path):
            raise InvalidArgumentError(
                f"there is no file {path}; where it is a running process, say --pid {path}"
            )
        else:
            found.append(Path(path))
    return [of_file(path) for path in found]


def of_memory(
    fd: int, *, by_launcher: bool = False, state: str = "", exit_code: int | None = None
) -> bytes:
    """A dump of the memory that ``fd`` is of. Its process may be writing meanwhile, or dead."""
    size = os.fstat(fd).st_size
    if size > _LARGEST_BYTES:
        raise InvalidArgumentError(f"descriptor {fd}: too large for a flight recorder's memory")
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return _native.stamp_trace(b"".join(parts), by_launcher, state, exit_code)


def dumps_of_process(pid: int) -> list[bytes]:
    """A dump of a living process, whatever it does; also one that is stopped.

    Of ``ciuic run``, which holds its ranks' memory, one of each rank.

    Raises:
        ciuic.UnavailableError: There is no such process, it is another user's, or it has no flight
            recorder. The message says which.
    """
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        raise UnavailableError(f"there is no process {pid}") from None
    except PermissionError:
        raise UnavailableError(
            f"process {pid} is another user's: run as that user, or as root"
        ) from None
    ours = _pids_in_namespaces(pid)
    found: dict[int, bytes] = {}
    for number in sorted(numbers, key=int):
        path = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError, InvalidArgumentError):
            if not re.match(rf"/memfd:{MEMORY_NAME}\b", os.readlink(path)):
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                whose = parse(of_memory(fd), path).pid
                found[whose] = of_memory(fd, state=_state_of(pid if whose in ours else whose))
            finally:
                os.close(fd)
    if not found:
        raise UnavailableError(
            f"process {pid} has no flight recorder: it has made no communicator, or "
            "CIUIC_TRACE_EVENTS is 0"
        )
    own = [data for whose, data in found.items() if whose in ours]
    return own or list(found.values())


def write_dump(directory: str | os.PathLike[str], data: bytes) -> Path:
    """The dump as a file of the usual name, which it returns. An older one is replaced."""
    path = Path(directory) / _native.trace_dump_name(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(data)
    beside.replace(path)
    return path


def _pids_in_namespaces(pid: int) -> set[int]:
    """The numbers that the process has in its own and in all outer namespaces."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return {int(word) for word in line.split()[1:]}
    return {pid}


def _state_of(pid: int) -> str:
    """The letter of ``/proc/PID/stat``: R, S, D, T, Z, …; X where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"
