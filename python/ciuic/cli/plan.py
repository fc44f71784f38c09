# SPDX-License-Identifier: Apache-2.0
"""``ciuic plan``: which algorithm a call gets, its steps and its predicted cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import InvalidArgumentError


def plan(
    operation: Annotated[
        str, typer.Argument(help="all_reduce, reduce, broadcast, all_gather or barrier.")
    ],
    ranks: Annotated[
        int, typer.Option("-n", "--ranks", help="Ranks; all on one host without --layout.")
    ] = 0,
    size: Annotated[str, typer.Option("--bytes", help="Of one rank's array; 1K is 1024.")] = "1M",
    layout: Annotated[
        str, typer.Option(help="Ranks on each host: '3+2', or '4x2' for four hosts of two.")
    ] = "",
    algorithm: Annotated[str, typer.Option(help="This one, instead of the one chosen.")] = "",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "float32",
    op: Annotated[str, typer.Option(help="sum, avg, min, max or product.")] = "sum",
    root: Annotated[int, typer.Option(help="The root, of an operation that has one.")] = 0,
    rank: Annotated[int, typer.Option(help="Whose steps are printed; -1: everyone's.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with everyone's steps.")
    ] = False,
) -> None:
    """Print the plan of an operation: the algorithm, its steps, its predicted cost."""
    import json

    from ciuic import _native

    with errors_as_lines("plan"):
        bytes_ = _native.parse_size(size)
        if bytes_ is None:
            raise InvalidArgumentError(f"--bytes {size} is no size; write 64, 1K, 16M")
        if ranks < 1 and not layout:
            raise InvalidArgumentError("give -n RANKS, or a --layout")
        whose = -1 if as_json else rank
        text = _native.describe_plan(
            operation, ranks, layout, bytes_, dtype, op, algorithm, root, whose
        )
    if as_json:
        typer.echo(text)
    else:
        _print(json.loads(text), _native.format_size)


def _print(described: dict[str, Any], size_text: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    hosts = described["hosts"]
    place = f"{described['ranks']} ranks on {hosts} host{'s' * (hosts != 1)}"
    console.print(
        f"{described['operation']}, {place} ({described['layout']}), "
        f"{size_text(described['bytes'])} bytes of {described['dtype']}, {described['op']}"
    )
    chosen = "chosen" if described["chosen"] else "not the one that the call would get"
    console.print(
        f"algorithm {described['algorithm']} ({chosen}), "
        f"chunks of {size_text(described['chunk_bytes'])} bytes, "
        f"predicted {described['predicted_us']:.1f} us"
    )
    totals = described["totals"]
    console.print(
        f"in all {totals['steps']} steps, {totals['messages']} messages, "
        f"{size_text(totals['sent_bytes'])} bytes sent, "
        f"{size_text(totals['most_sent_bytes'])} by the rank that sends most"
    )
    for plan_of_rank in described["plans"]:
        table = Table(
            *("step", "kind", "peers", "lane", "source", "target", "bytes", "after"),
            title=f"rank {plan_of_rank['rank']}: sends {size_text(plan_of_rank['sent_bytes'])} "
            f"bytes, scratch {size_text(plan_of_rank['scratch_bytes'])} bytes",
            title_justify="left",
        )
        for number, step in enumerate(plan_of_rank["steps"]):
            table.add_row(
                str(number),
                step["kind"],
                " ".join(str(peer) for peer in step["peers"]),
                str(step["lane"]),
                _range_text(step["source"]),
                _range_text(step["target"]),
                size_text(step["bytes"]),
                " ".join(f"{a['step']}{'!' if a['whole'] else ''}" for a in step["after"]),
            )
        console.print(table)
    console.print("after: steps before it, chunk by chunk; '!' waits for the whole step")


def _range_text(place: dict[str, Any] | None) -> str:
    if place is None:
        return ""
    return f"{place['space']} {place['first']}+{place['count']}"
