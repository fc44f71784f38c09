# SPDX-License-Identifier: Apache-2.0
"""What a whole selftest found, as counts, JSON and text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ciuic.selftest.cases import OPERATIONS, Case
from ciuic.selftest.machine import Finding
from ciuic.selftest.routes import Route
from ciuic.selftest.starter import Failure, Outcome

FORMAT = 1


def summarise(
    outcomes: Sequence[tuple[Route, Sequence[Case], Outcome]],
    findings: Sequence[Finding],
    seconds: float,
) -> dict[str, Any]:
    """One JSON object.

    Args:
        outcomes: Of each transport: its cases, and what became of them.
        findings: Of the machine.
        seconds: That it took.
    """
    from ciuic import _native

    transports = [_transport(*each) for each in outcomes]
    failures = [
        failure
        for route, _, outcome in outcomes
        for failure in _failures(route.name, outcome.failures)
    ]
    failures += [
        _failure(f"machine/{finding.name}", None, finding.text)
        for finding in findings
        if not finding.good
    ]
    checks = len(findings) + sum(transport["checks"] for transport in transports)
    # Of an installation over which no rank reaches another nothing is proven.
    asked = [transport for transport in transports if transport["asked"]]
    if asked and not any(transport["offered"] for transport in asked):
        reasons = "; ".join(f"{each['name']}: {each['reason']}" for each in asked)
        failures.append(_failure("", None, f"no transport works here: {reasons}"))
    return {
        "format": FORMAT,
        "version": _native.version(),
        "simd": _native.simd_target(),
        "checks": checks,
        "failed": len(failures),
        "left_out": sum(transport["left_out"] for transport in transports),
        "seconds": round(seconds, 1),
        "arrays": next((outcome.arrays for _, _, outcome in outcomes if outcome.arrays), ""),
        "dtypes": len({case.dtype for _, cases, _ in outcomes for case in cases if case.dtype}),
        "transports": transports,
        "machine": [finding._asdict() for finding in findings],
        "failures": failures,
    }


def _transport(route: Route, cases: Sequence[Case], outcome: Outcome) -> dict[str, Any]:
    offered = not outcome.missing
    made = cases[: outcome.done]
    failed = {failure.case for failure in outcome.failures}
    operations: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        names = [case.name for case in made if case.operation == operation]
        if names:
            operations[operation] = {
                "checks": len(names),
                "failed": len(failed.intersection(names)),
                "seconds": round(outcome.seconds.get(operation, 0.0), 3),
            }
    return {
        "name": route.name,
        "means": route.means,
        "asked": bool(cases),
        "offered": offered,
        "reason": outcome.missing,
        "group": outcome.group,
        "checks": len(made),
        "failed": len(failed),
        "left_out": len(cases) - len(made) if offered else 0,
        "operations": operations,
    }


def _failures(transport: str, found: Sequence[Failure]) -> list[dict[str, Any]]:
    """One for each case, with what the first rank says of it."""
    first: dict[str, Failure] = {}
    for failure in sorted(found, key=lambda failure: failure.rank):
        first.setdefault(failure.case, failure)
    return [
        _failure(f"{transport}/{case}", failure.rank, failure.text)
        for case, failure in first.items()
    ]


def _failure(name: str, rank: int | None, text: str) -> dict[str, Any]:
    command = f"ciuic selftest --only {shlex.quote(name)}" if name else "ciuic selftest"
    return {"name": name, "rank": rank, "text": text, "command": command}


def last_line(summary: dict[str, Any]) -> str:
    """ "selftest: 1234 checks, 0 failed, 48 s"."""
    left = f", {summary['left_out']} not made" if summary["left_out"] else ""
    return (
        f"selftest: {summary['checks']} checks, {summary['failed']} failed{left}, "
        f"{summary['seconds']:.0f} s"
    )


def table(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: an operation a row, a transport that is offered a column."""
    offered = [each for each in summary["transports"] if each["operations"]]
    rows = []
    for operation in OPERATIONS:
        cells = [_cell(transport["operations"].get(operation)) for transport in offered]
        if any(cells):
            rows.append([operation, *cells])
    if rows:
        rows.append(["together", *(_cell(transport) for transport in offered)])
    return ["operation", *(transport["name"] for transport in offered)], rows


def _cell(counts: dict[str, Any] | None) -> str:
    if counts is None:
        return ""
    failed = counts["failed"]
    return f"{counts['checks']}, {failed} failed" if failed else str(counts["checks"])


def failure_lines(summary: dict[str, Any], limit: int = 10) -> list[str]:
    """What went wrong, and how to see it alone."""
    lines = []
    for failure in summary["failures"][:limit]:
        where = f" on rank {failure['rank']}" if failure["rank"] is not None else ""
        lines.append(f"failed: {failure['name'] or 'all'}{where}: {failure['text']}")
        lines.append(f"        {failure['command']}")
    more = len(summary["failures"]) - limit
    if more > 0:
        lines.append(f"and {more} more; --json has them all")
    return lines
