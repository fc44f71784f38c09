# SPDX-License-Identifier: Apache-2.0
"""``ciuic report``: one archive for whoever is to understand a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ciuic.report.strip import Stripper


def report(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Dumps of flight recorders (*.ciuic-trace), or directories of them.",
            metavar="[TRACE …]",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="The file to write, a .tar.gz.")
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option("--pid", help="A rank that runs, hangs or is stopped, or its ciuic run."),
    ] = None,
    no_selftest: Annotated[
        bool, typer.Option("--no-selftest", help="Leave the selftest out.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The quick selftest.")] = False,
    selftest: Annotated[
        str | None,
        typer.Option("--selftest", help="What ciuic selftest --json has printed before."),
    ] = None,
) -> None:
    """Put what is known of this machine, a selftest and traces into one archive, without secrets.

    It is written to a file and sent nowhere.
    """
    with errors_as_lines("report"):
        from ciuic.report import archive, facts
        from ciuic.report import traces as recorders
        from ciuic.report.strip import Stripper

        if selftest is not None and (no_selftest or quick):
            raise InvalidArgumentError("--selftest gives a result; do not ask for another, or none")
        path = Path(output or archive.default_name())
        if path.exists():
            raise InvalidArgumentError(f"{path} is there already")
        stripper = Stripper.of_this_process(pid or [])
        members = dict(facts.all_facts(stripper))
        dumps, unread = recorders.read(traces or [], pid or [])
        if not no_selftest:
            members["selftest.json"] = _selftest(selftest, quick, stripper)
        packed = {name: _json(value) for name, value in members.items()}
        packed.update(recorders.members(dumps, unread, stripper))
        left_out, size = archive.write(path, packed, stripper)
    typer.echo(f"{path} ({size} bytes) has")
    for name, data in sorted(packed.items()):
        if name not in left_out:
            typer.echo(f"  {name}: {len(data)} bytes")
    for name in left_out:
        typer.echo(f"left out, since a secret could not be taken out of it: {name}")
    for line in unread:
        typer.echo(f"not read: {stripper.text(line)}")
    typer.echo(
        "Secrets, users' names and home directories were taken out; names and addresses of "
        f"machines were not.\nIt was sent nowhere. Read it before you give it away: tar -xzf {path}"
    )


def _json(value: Any) -> bytes:
    # Not in ASCII alone, so that a last look for secrets sees them as they are.
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _selftest(given: str | None, quick: bool, stripper: Stripper) -> Any:
    """A given result, or that of a new one; why there is none."""
    if given is not None:
        try:
            found = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"--selftest {given}: {error}") from None
        return stripper.value(found)
    from ciuic.cli.selftest import run_selftest

    try:
        return stripper.value(run_selftest([], quick=quick, show=True))
    except Exception as error:
        return {"error": stripper.text(f"{type(error).__name__}: {error}")}
