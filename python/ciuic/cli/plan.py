# SPDX-License-Identifier: Apache-2.0
"""``ciuic plan``: which algorithm a call gets, its steps and its predicted cost; of plans of one's
own also whether they are right, how they look, and how they fare in the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import InvalidArgumentError


def plan(
    operation: Annotated[
        str, typer.Argument(help="all_reduce, broadcast, ...; not needed with --file.")
    ] = "",
    ranks: Annotated[
        int, typer.Option("-n", "--ranks", help="Ranks; all on one host without --layout.")
    ] = 0,
    size: Annotated[str, typer.Option("--bytes", help="Of one rank's array; 1K is 1024.")] = "1M",
    layout: Annotated[
        str, typer.Option(help="Ranks on each host: '3+2', or '4x2' for four hosts of two.")
    ] = "",
    algorithm: Annotated[
        str, typer.Option(help="This one, instead of the one chosen; also one of --module's.")
    ] = "",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "float32",
    op: Annotated[str, typer.Option(help="sum, avg, min, max or product.")] = "sum",
    root: Annotated[
        int | None, typer.Option(help="The root, of an operation that has one; 0 if not given.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Whose steps are printed; -1: everyone's.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with everyone's steps.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(help="Plans from a plan file, instead of an algorithm's.")
    ] = None,
    module: Annotated[
        Path | None, typer.Option(help="A Python file that registers algorithms.")
    ] = None,
    proves: Annotated[
        bool, typer.Option("--prove", help="Prove it; without --root with each rank as the root.")
    ] = False,
    seeds: Annotated[
        int, typer.Option("--simulate", metavar="SEEDS", help="Simulate so many runs of it.")
    ] = 0,
    first_seed: Annotated[int, typer.Option(help="Of --simulate.")] = 1,
    picture: Annotated[
        Path | None, typer.Option("--draw", metavar="FILE.svg", help="Draw it.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as a plan file.")
    ] = None,
) -> None:
    """Print the plan of an operation: the algorithm, its steps, its predicted cost."""
    import json

    from ciuic import _native

    with errors_as_lines("plan"):
        bytes_ = _native.parse_size(size)
        if bytes_ is None:
            raise InvalidArgumentError(f"--bytes {size} is no size; write 64, 1K, 16M")
        asked = _Asked(operation, ranks, layout, algorithm, root, bytes_, dtype, op)
        asked.find(file, module)
        text = asked.describe(-1 if as_json else rank)
        said = []
        if proves or seeds:
            said.append(asked.prove())
        if seeds:
            said.append(asked.simulate(seeds, first_seed))
        if picture is not None:
            said.append(asked.draw(picture))
        if export is not None:
            said.append(asked.export(export))
    if as_json:
        typer.echo(text)
    else:
        _print(json.loads(text), _native.format_size)
    for line in said:
        typer.echo(line, err=as_json)


@dataclass
class _Asked:
    """Which plans are meant, and what can be asked of them."""

    operation: str
    ranks: int
    layout: str
    algorithm: str
    root: int | None
    bytes: int
    dtype: str
    op: str
    file: str = ""  # its text

    def find(self, file: Path | None, module: Path | None) -> None:
        """Looks up what is meant."""
        if file is not None:
            return self._take_file(file, module)
        if self.ranks < 1 and not self.layout:
            raise InvalidArgumentError("give -n RANKS, or a --layout")
        self._take_module(module)

    def _take_file(self, path: Path, module: Path | None) -> None:
        given = (self.operation, self.ranks, self.layout, self.algorithm, self.root, module)
        if any(value not in ("", 0, None) for value in given[1:]):
            raise InvalidArgumentError(
                "--file has layout, algorithm and root; give no -n, --layout, --algorithm, --root "
                "or --module"
            )
        try:
            self.file = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InvalidArgumentError(f"--file: {error}") from None

    def _take_module(self, path: Path | None) -> None:
        """What the module registers; where that is one algorithm, it is meant."""
        from ciuic.plan import registry
        from ciuic.plan.modules import import_module

        if path is not None:
            import_module(path)
        if path is not None and not self.algorithm:
            known = [
                (operation, name)
                for operation, names in registry.registered().items()
                for name in names
                if self.operation in ("", operation)
            ]
            if len(known) != 1:
                names = ", ".join(f"{name} ({operation})" for operation, name in known)
                raise InvalidArgumentError(
                    f"--module {path} registers {names or 'nothing'}; say --algorithm NAME"
                )
            self.operation, self.algorithm = known[0]
        own = registry.find(self.algorithm, self.operation or None) if self.algorithm else None
        if own is not None:
            self.operation = own.operation
            self.file = own.file(self._layout(), self._roots()[0])
        elif not self.operation:
            raise InvalidArgumentError("say which operation: all_reduce, broadcast, ...")

    def describe(self, rank: int) -> str:
        from ciuic import _native

        if self.file:
            return _native.describe_plan(
                "", 0, "", self.bytes, self.dtype, self.op, "", 0, rank, self.file
            )
        return _native.describe_plan(*self._query(self.root or 0), rank)

    def prove(self) -> str:
        from ciuic import _native

        files = self._files()
        for file in files:
            _native.prove_plan(file)
        roots = f" with each of {len(files)} roots" if len(files) > 1 else ""
        return f"proved{roots}: for every element count, every order of ranks and links"

    def simulate(self, seeds: int, first_seed: int) -> str:
        from ciuic.plan.trials import simulate_files

        ran = simulate_files(self.algorithm or "it", self._files(), seeds, first_seed)
        return (
            f"simulated with {ran.seeds} seeds from {first_seed} on: {ran.operations:,} results "
            f"right, {ran.steps:,} steps"
        )

    def draw(self, path: Path) -> str:
        import json

        from ciuic.plan import drawing
        from ciuic.plan.layout import Layout

        described = json.loads(self.describe(-1))
        _write(path, drawing.svg(described, Layout.parse(described["layout"])))
        return f"drawn: {path}"

    def export(self, path: Path) -> str:
        from ciuic.plan.trials import readable

        _write(path, readable(self._files(all_roots=False)[0]))
        return f"exported: {path}"

    def _layout(self) -> Any:
        from ciuic.plan.layout import Layout

        layout = Layout.parse(self.layout or str(self.ranks))
        if self.ranks not in (0, layout.size):
            raise InvalidArgumentError(
                f"layout {self.layout} has {layout.size} ranks, not {self.ranks}"
            )
        return layout

    def _roots(self) -> list[int]:
        from ciuic.plan import registry

        layout = self._layout()
        if self.operation not in registry.ROOTED:
            return [0]
        if self.root is not None:
            if not 0 <= self.root < layout.size:
                raise InvalidArgumentError(f"root {self.root} is outside the {layout.size} ranks")
            return [self.root]
        return list(range(layout.size))

    def _files(self, all_roots: bool = True) -> list[str]:
        """The plan files, by root."""
        from ciuic import _native
        from ciuic.plan import registry

        if self.file and not self.algorithm:
            return [self.file]
        own = registry.find(self.algorithm, self.operation)
        roots = self._roots() if all_roots else self._roots()[:1]
        if own is not None:
            return [own.file(self._layout(), root) for root in roots]
        return [_native.export_plan(*self._query(root)) for root in roots]

    def _query(self, root: int) -> tuple[str, int, str, int, str, str, str, int]:
        return (
            self.operation,
            self.ranks,
            self.layout,
            self.bytes,
            self.dtype,
            self.op,
            self.algorithm,
            root,
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(str(error)) from None


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
