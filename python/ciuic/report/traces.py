# SPDX-License-Identifier: Apache-2.0
"""Flight recorders for a report: stripped dumps, and what ``ciuic trace`` says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ciuic import _native
from ciuic.errors import CiuicError, InvalidArgumentError
from ciuic.report.strip import Stripper
from ciuic.trace import recording


def read(paths: Sequence[str], pids: Sequence[int]) -> tuple[list[bytes], list[str]]:
    """Dumps of files, of directories of them, and of processes; and why some have none.

    Raises:
        ValueError: A path that is none, or without a dump.
    """
    dumps: list[bytes] = []
    unread: list[str] = []
    for name in paths:
        path = Path(name)
        files = sorted(path.glob(f"*{recording.SUFFIX}")) if path.is_dir() else [path]
        if not files:
            raise InvalidArgumentError(f"{name}: no *{recording.SUFFIX} in it")
        for file in files:
            recording.of_file(file)  # says what is wrong with it, where it is no dump
            dumps.append(file.read_bytes())
    for pid in pids:
        try:
            dumps += recording.dumps_of_process(pid)
        except CiuicError as error:
            unread.append(str(error))
    return dumps, unread


def members(dumps: Sequence[bytes], unread: Sequence[str], stripper: Stripper) -> dict[str, bytes]:
    """Members of the archive, name by name."""
    found: dict[str, bytes] = {}
    recordings = []
    words = [stripper.text(line) for line in unread]
    for data in dumps:
        stripped = stripper.data(data)
        name = re.sub(r"[^\w.-]", "_", _native.trace_dump_name(stripped))
        while f"traces/{name}" in found:
            name = f"again-{name}"
        try:
            recordings.append(recording.parse(stripped, name))
        except CiuicError as error:
            words.append(stripper.text(f"left out: {error}"))
            continue
        found[f"traces/{name}"] = stripped
    facts: dict[str, Any] = {"unread": list(words)}
    if recordings:
        from ciuic.trace.job import merge, runs
        from ciuic.trace.report import as_json, sentences

        for run in runs(recordings):
            job = merge(run)
            words += [stripper.text(line) for line in sentences(job)]
            facts.setdefault("runs", []).append(stripper.value(as_json(job)))
    if words:
        found["traces/trace.txt"] = ("\n".join(words) + "\n").encode("utf-8", "backslashreplace")
        found["traces/trace.json"] = json.dumps(facts, indent=2, ensure_ascii=False).encode(
            "utf-8", "backslashreplace"
        )
    return found
