# SPDX-License-Identifier: Apache-2.0
"""``ciuic plan``: which algorithm a call gets, its steps and its predicted cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines


def plan(
    operation: Annotated[
        str, typer.Argument(help="all_reduce, reduce, broadcast, all_gather or barrier.")
    ],
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", help="Ranks, all on one host.")
    ] = None,
    size: Annotated[str, typer.Option("--bytes", help="Of one rank's array; 1K is 1024.")] = "1M",
    layout: Annotated[
        str, typer.Option(help="Ranks on each host: '3+2', or '4x2' for four hosts of two.")
    ] = "",
    algorithm: Annotated[str, typer.Option(help="This one, not the one that is chosen.")] = "",
    root: Annotated[int, typer.Option(help="The root, of an operation that has one.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print the plan of an operation: the algorithm, its steps, its predicted cost."""
    import json

    from ciuic import _native

    with errors_as_lines("plan"):
        text = _native.describe_plan(operation, ranks or 0, layout, size, algorithm, root)
    if as_json:
        typer.echo(text)
    else:
        _print(json.loads(text))


def _print(described: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(described, indent=2))
