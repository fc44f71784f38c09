# SPDX-License-Identifier: Apache-2.0
"""The recordings as torch's flight recorder would have dumped them, for ``torchfrtrace``.

A pickle a rank, named ``ciuic_RANK``. torch's analyser knows a fixed list of backends by name and
refuses others, so operations are called ``gloo:all_reduce``. It pairs operations by their numbers
in a group. Where rings have lost different numbers of old operations, only those are written that
all ranks' rings still have.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from ciuic.errors import InvalidArgumentError
from ciuic.trace.job import GroupOfRanks, Job, Member
from ciuic.trace.recording import Operation

VERSION = "2.10"  # of the format, as torch 2.13 writes it
PREFIX = "ciuic_"

_DTYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int32": "Int",
    "int64": "Long",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
}


def write_torch_dumps(job: Job, directory: str | os.PathLike[str]) -> list[Path]:
    """Writes them into the directory, which is made where it is missing, and returns their paths.

    Raises:
        ciuic.InvalidArgumentError: No recording has a rank, or the directory holds other files:
            torch's analyser reads every file of a directory.
    """
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    strangers = [each.name for each in place.iterdir() if not each.name.startswith(PREFIX)]
    if strangers:
        raise InvalidArgumentError(
            f"{directory} is not empty ({strangers[0]}): torch's analyser reads all files of a "
            "directory; name a new one"
        )
    dumps = torch_dumps(job)
    if not dumps:
        raise InvalidArgumentError(
            "no recording says which rank it is of; there is nothing to write"
        )
    paths = []
    for rank, dump in sorted(dumps.items()):
        path = place / f"{PREFIX}{rank}"
        path.write_bytes(pickle.dumps(dump, protocol=2))
        paths.append(path)
    return paths


def torch_dumps(job: Job) -> dict[int, dict[str, Any]]:
    """By world rank, what the pickles hold."""
    dumps: dict[int, dict[str, Any]] = {}
    for recording in job.recordings:
        if recording.world_rank >= 0 and recording.groups:
            dumps[recording.world_rank] = {
                "version": VERSION,
                "comm_lib_version": recording.library,
                "pg_config": {},
                "pg_status": {},
                "entries": [],
            }
    for number, group in enumerate(job.groups):
        name = f"{group.name}.{group.epoch}" if group.epoch > 1 else group.name
        if sum(other.name == group.name and other.epoch == group.epoch for other in job.groups) > 1:
            name = f"{name}#{number}"
        ranks = _world_ranks(job, group)
        first = _first_of_all(group)
        for rank, member in group.members.items():
            dump = dumps.get(member.recording.world_rank)
            if dump is None:
                continue
            dump["pg_config"][name] = {"name": name, "desc": group.name, "ranks": str(ranks)}
            dump["pg_status"][str(number)] = _status(member)
            for sequence, operation in member.operations.items():
                if operation.is_known and sequence >= first:
                    entry = _entry(job, group, member, rank, operation)
                    dump["entries"].append(
                        {**entry, "pg_id": number, "process_group": (name, group.name)}
                    )
    for dump in dumps.values():
        dump["entries"].sort(key=lambda entry: entry["time_created_ns"])
        for record_id, entry in enumerate(dump["entries"]):
            entry["record_id"] = record_id
    return dumps


def _world_ranks(job: Job, group: GroupOfRanks) -> list[int]:
    """The group's ranks as the world's; those not recorded only where the group is the world."""
    world = max((each.size for each in job.groups), default=0)
    known = {rank: member.recording.world_rank for rank, member in group.members.items()}
    if group.size == world:
        known = {rank: known.get(rank, rank) for rank in range(group.size)}
    return sorted(known.values())


def _first_of_all(group: GroupOfRanks) -> int:
    """The first operation that no recording that reaches it has lost."""
    firsts = [
        min(s for s, o in member.operations.items() if o.is_known)
        for member in group.members.values()
        if any(o.is_known for o in member.operations.values())
    ]
    return max(firsts, default=0)


def _status(member: Member) -> dict[str, int]:
    known = [(s, o) for s, o in member.operations.items() if o.is_known]
    return {
        "last_enqueued_collective": max((s for s, _ in known), default=-1),
        "last_started_collective": max(
            (s for s, o in known if o.started_ns is not None), default=-1
        ),
        "last_completed_collective": max((s for s, o in known if not o.is_open), default=-1),
    }


def _entry(
    job: Job, group: GroupOfRanks, member: Member, rank: int, operation: Operation
) -> dict[str, Any]:
    def time_of(value: int | None) -> int | None:
        return None if value is None else job.time_ns(member.recording, value)

    done = not operation.is_open
    state = "completed" if done else "started" if operation.started_ns is not None else "scheduled"
    gathers = operation.name == "all_gather"
    dtype = _DTYPES.get(operation.dtype, operation.dtype)
    entry: dict[str, Any] = {
        "collective_seq_id": operation.sequence,
        "p2p_seq_id": 0,
        "op_id": operation.sequence,
        "profiling_name": f"gloo:{operation.name}",
        "time_created_ns": time_of(operation.called_ns) or 0,
        "input_sizes": [[operation.count]],
        "input_dtypes": [dtype],
        "output_sizes": [[operation.count * (group.size if gathers else 1)]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": time_of(operation.started_ns),
        "time_discovered_completed_ns": time_of(operation.ended_ns) if done else None,
        "retired": done,
        "timeout_ms": 0,
        "is_p2p": False,
        "frames": [],
        "thread_id": "0",
        "thread_name": f"rank {rank} of {group.name}",
    }
    if done and operation.ended_ns is not None and operation.started_ns is not None:
        entry["duration_ms"] = (operation.ended_ns - operation.started_ns) / 1e6
    return entry
