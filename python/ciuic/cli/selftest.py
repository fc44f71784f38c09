# SPDX-License-Identifier: Apache-2.0
"""``ciuic selftest``: proves an installation on this machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ciuic.selftest.cases import Case
    from ciuic.selftest.routes import Route


def selftest(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Checks by name, or by the beginning of one: tcp/all_reduce/float16/avg; * is any "
            "word. May be given several times.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes, and no pairs of ranks: some 10 seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every operation on every dtype over every transport of this machine.

    Starts four ranks for each transport, and compares every result with one that plain Python has
    worked out. The exit code is 1 where something is wrong.
    """
    with errors_as_lines("selftest"):
        summary = run_selftest(only or [], quick=quick, show=not as_json)
    if as_json:
        import json

        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary)
    raise SystemExit(1 if summary["failed"] else 0)


def run_selftest(only: Sequence[str], *, quick: bool, show: bool) -> dict[str, Any]:
    """Makes the checks, and gives the JSON object that ``--json`` prints.

    Args:
        only: Patterns of names; none: all.
        quick: Fewer of them.
        show: Progress on stderr, where that is a terminal.

    Raises:
        ValueError: A pattern that means no check.
    """
    from ciuic.selftest.cases import all_cases, matches
    from ciuic.selftest.machine import all_findings
    from ciuic.selftest.routes import ROUTES, why_not
    from ciuic.selftest.starter import Outcome, run_route
    from ciuic.selftest.summary import summarise

    began = time.monotonic()
    every = all_cases(quick=quick)
    chosen = [
        (route, [case for case in every if matches(f"{route.name}/{case.name}", only)])
        for route in ROUTES
    ]
    findings = {
        name: find for name, find in all_findings().items() if matches(f"machine/{name}", only)
    }
    for pattern in only:
        names = [f"{route.name}/{case.name}" for route, cases in chosen for case in cases]
        names += [f"machine/{name}" for name in findings]
        if not any(matches(name, [pattern]) for name in names):
            raise InvalidArgumentError(f"--only {pattern}: there is no such check")
    outcomes = []
    with _Progress([(route, cases) for route, cases in chosen if cases], show) as progress:
        found = [find() for find in findings.values()]
        for route, cases in chosen:
            missing = why_not(route)
            if missing or not cases:
                outcome = Outcome(missing, 0, [], {}, "", {})
            else:
                outcome = run_route(route, cases, progress.of(route))
            progress.end(route, outcome.missing)
            outcomes.append((route, cases, outcome))
    return summarise(outcomes, found, time.monotonic() - began)


class _Progress:
    """A bar for each transport, on a terminal."""

    def __init__(self, chosen: Sequence[tuple[Route, Sequence[Case]]], show: bool) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        if not show or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        for route, cases in chosen:
            self._tasks[route.name] = self._bars.add_task(route.means, total=len(cases))

    def __enter__(self) -> _Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def of(self, route: Route) -> Callable[[int, int], None]:
        def tell(made: int, failed: int) -> None:
            if route.name in self._tasks:
                note = f", {failed} failed" if failed else ""
                self._bars.update(
                    self._tasks[route.name], completed=made, description=route.means + note
                )

        return tell

    def end(self, route: Route, missing: str) -> None:
        if route.name in self._tasks:
            task = self._bars.tasks[self._tasks[route.name]]
            self._bars.update(
                task.id,
                completed=task.completed if missing else task.total,
                description=f"{route.means}: not here" if missing else task.description,
            )


def _print(summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from ciuic.selftest.summary import failure_lines, last_line, table

    console = Console(highlight=False)
    heads, rows = table(summary)
    if rows:
        shown = Table(title=None)
        for index, head in enumerate(heads):
            shown.add_column(head, justify="right" if index else "left")
        for row in rows:
            shown.add_row(*row, end_section=row is rows[-2] if len(rows) > 1 else False)
        console.print(shown)
        typer.echo(f"arrays: {summary['arrays']}; kernels: {summary['simd']}")
    for finding in summary["machine"]:
        typer.echo(f"{finding['name']}: {finding['text']}")
    for transport in summary["transports"]:
        if transport["asked"] and not transport["offered"]:
            typer.echo(f"{transport['name']} is not tested: {transport['reason']}")
    for line in failure_lines(summary):
        typer.echo(line)
    typer.echo(last_line(summary))
