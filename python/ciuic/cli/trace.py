# SPDX-License-Identifier: Apache-2.0
"""``ciuic trace``: what flight recorders say, of files or of living processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import CiuicError, InvalidArgumentError

if TYPE_CHECKING:
    from ciuic.trace.job import Job
    from ciuic.trace.recording import Recording


def trace(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Dumps (*.ciuic-trace), or directories of them.", metavar="[FILE …]"),
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option("--pid", help="A rank that runs, hangs or is stopped, or its ciuic run."),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option("--save", help="Write what --pid reads as dumps to this directory."),
    ] = None,
    chrome: Annotated[
        str | None,
        typer.Option("--chrome", help="Write JSON for ui.perfetto.dev or chrome://tracing."),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option("--torch", help="Write dumps for torchfrtrace to this directory."),
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="Of dumps of several runs, tell of all, not of the last.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say which rank is behind, and on what; who arrives last.

    Reads the flight recorders of processes: dumps that were written when a job failed, or, with
    --pid, of processes of this machine as they are now, without their help.
    """
    with errors_as_lines("trace"):
        recordings, unread = _read(files or [], pid or [], save)
        from ciuic.trace.job import merge, runs

        if not all_runs:
            last = runs(recordings)[-1]
            if len(last) < len(recordings):
                unread.append(
                    f"{len(recordings) - len(last)} recordings of earlier runs are left out; "
                    "--all tells of them too"
                )
            recordings = last
        job = merge(recordings)
        if chrome is not None:
            _write_chrome(job, chrome)
        if torch is not None:
            from ciuic.trace.torch_format import write_torch_dumps

            write_torch_dumps(job, torch)
    if as_json:
        from ciuic.trace.report import as_json as facts

        typer.echo(json.dumps({**facts(job), "unread": unread}))
    else:
        for text in unread:
            sys.stderr.write(f"ciuic trace: {text}\n")
        _print(job)


def _read(files: list[str], pids: list[int], save: str | None) -> tuple[list[Recording], list[str]]:
    """The recordings, and why some processes have none. One of all must."""
    from ciuic.trace import recording

    if not files and not pids:
        raise InvalidArgumentError("name dumps or directories of them, or processes with --pid")
    if pids:  # --pid 11 22
        more = [name for name in files if name.isdecimal() and not os.path.exists(name)]
        pids = [*pids, *(int(name) for name in more)]
        files = [name for name in files if name not in more]
    found = recording.of_paths(files)
    unread = []
    for pid in pids:
        try:
            dumps = recording.dumps_of_process(pid)
        except CiuicError as error:
            unread.append(str(error))
            continue
        found += [recording.parse(data, f"process {pid}") for data in dumps]
        for data in dumps if save is not None else ():
            try:
                recording.write_dump(str(save), data)
            except OSError as error:
                raise InvalidArgumentError(f"--save {save}: {error.strerror}") from None
    if not found:
        raise InvalidArgumentError("; ".join(unread))
    return found, unread


def _write_chrome(job: Job, path: str) -> None:
    from ciuic.trace.chrome import chrome_trace

    try:
        Path(path).write_text(json.dumps(chrome_trace(job)), encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"--chrome {path}: {error.strerror}") from None


def _print(job: Job) -> None:
    from ciuic.trace.lateness import lateness
    from ciuic.trace.report import TABLE_HEADS, sentences, table_rows

    for line in sentences(job):
        typer.echo(line)
    rows = table_rows(lateness(job))
    if not rows:
        return
    heads = list(TABLE_HEADS)
    if len(job.groups) == 1:  # there is nothing to tell apart
        heads, rows = heads[1:], [row[1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    typer.echo("")
    for row in [tuple(heads), *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
