# SPDX-License-Identifier: Apache-2.0
"""The command line of ``ciuic bench``: parses, runs, prints. ``ciuic.cli`` mounts :func:`bench`."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Annotated

import typer

from ciuic.bench.options import (
    DEFAULT_IMPLEMENTATIONS,
    DEFAULT_SIZES,
    DEFAULT_WAYS,
    WAYS,
    Options,
    parse_size,
    sweep,
)


def bench(
    operation: Annotated[
        str, typer.Argument(help="all_reduce; or ddp, a training step.")
    ] = "all_reduce",
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Processes of each.")] = 2,
    begin: Annotated[str, typer.Option("-b", "--begin", help="Smallest size, in bytes.")] = "8",
    end: Annotated[str, typer.Option("-e", "--end", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", "--factor", help="From size to size.")] = 8,
    sizes: Annotated[
        str | None, typer.Option(help="The sizes themselves, such as 8,1K,1M.")
    ] = None,
    impl: Annotated[
        str,
        typer.Option(
            help="ciuic, or by a backend ciuic:native, ciuic:mpi, ciuic:nccl; gloo, fake (torch's, "
            "which sends nothing); separated by commas."
        ),
    ] = ",".join(DEFAULT_IMPLEMENTATIONS),
    through: Annotated[
        str,
        typer.Option(
            help="native: a loop in C++; python: calls from Python; both; torch: "
            "torch.distributed, blocking and async. Of ddp: step; buckets, all-reduced alone."
        ),
    ] = "both",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "float32",
    op: Annotated[str, typer.Option(help="sum, avg, min, max or product.")] = "sum",
    algorithm: Annotated[
        str, typer.Option(help="Measure this one as well; the library's, or one of your own.")
    ] = "",
    module: Annotated[str, typer.Option(help="A Python file that registers algorithms.")] = "",
    plan: Annotated[str, typer.Option(help="A plan file; measures its algorithm.")] = "",
    rounds: Annotated[int, typer.Option(help="Measurements of each size.")] = 5,
    round_ms: Annotated[float, typer.Option(help="Milliseconds of one measurement.")] = 50.0,
    seed: Annotated[int | None, typer.Option(help="Of the order of rounds.")] = None,
    mpiexec: Annotated[
        str, typer.Option(help="What starts ciuic:mpi. Else this environment's, or PATH's.")
    ] = "",
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the figures there.")
    ] = None,
) -> None:
    """Measure an operation beside other implementations, interleaved, results checked first."""
    import random

    try:
        algorithm = _found(algorithm, module, plan, ranks)
        options = Options(
            operation=operation,
            ranks=ranks,
            sizes=tuple(_sizes(operation, sizes, begin, end, factor)),
            implementations=tuple(impl.split(",")),
            through=_ways(operation, through),
            dtype=dtype,
            op=op,
            algorithm=algorithm,
            module=module,
            plan=plan,
            rounds=rounds,
            round_ms=round_ms,
            seed=random.randrange(1 << 32) if seed is None else seed,
            mpiexec=mpiexec,
        )
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    raise SystemExit(run(options, json_file))


def _sizes(operation: str, sizes: str | None, begin: str, end: str, factor: int) -> Sequence[int]:
    if sizes is not None:
        return [parse_size(size) for size in sizes.split(",")]
    return DEFAULT_SIZES.get(operation) or sweep(parse_size(begin), parse_size(end), factor)


def _ways(operation: str, through: str) -> tuple[str, ...]:
    if through == "both":
        return DEFAULT_WAYS.get(operation, ())
    if through == "torch":
        return tuple(way for way in WAYS.get(operation, ()) if way not in ("native", "python"))
    return tuple(through.split(","))


def _found(algorithm: str, module: str, plan: str, ranks: int) -> str:
    """The algorithm that is meant, proved; "" where none is."""
    if not (algorithm or module or plan):
        return ""
    from ciuic.bench.implementations import load_algorithms
    from ciuic.plan import prove, registered

    algorithm = algorithm or load_algorithms("", plan) or ""
    load_algorithms(module, "")
    if not algorithm:
        names = registered().get("all_reduce", [])
        if len(names) != 1:
            raise ValueError(f"--module {module}: {names}; say --algorithm NAME")
        (algorithm,) = names
    prove(algorithm, ranks, operation="all_reduce")
    return algorithm


def run(options: Options, json_file: str | None) -> int:
    """Measures, prints and writes; the exit code."""
    from ciuic.bench.measure import run as measure
    from ciuic.errors import CiuicError

    try:
        with _terminated_as_exit(), _Progress() as progress:
            report = measure(options, progress.show)
    except CiuicError as error:
        sys.stderr.write(f"ciuic bench: {error}\n")
        return 1
    if json_file != "-":
        report.print_table(sys.stdout)
    if json_file is not None:
        report.write_json(json_file)
    return 0


@contextlib.contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """INT, TERM and HUP end this program as an exception does, so that nothing stays behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Progress:
    """A bar on stderr, where that is a terminal. Its thread starts with the first measurement."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._update: object = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, done: int, all_: int) -> None:
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import Progress

        if not isinstance(self._update, Progress):
            self._update = self._stack.enter_context(
                Progress(console=Console(stderr=True), transient=True)
            )
            self._update.add_task("measuring", total=all_)
        self._update.update(self._update.task_ids[0], completed=done)
