# SPDX-License-Identifier: Apache-2.0
"""What can be asked of an algorithm before it runs: is it right, what does it cost, how does it
look, and does it come through a simulated network. The library's own are asked in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciuic import _native
from ciuic.errors import CiuicError, InvalidArgumentError
from ciuic.plan import drawing, registry
from ciuic.plan.layout import Layout, as_layout


class SimulationError(CiuicError):
    """A simulated run went wrong; the message has the seed, and what was wrong."""


@dataclass(frozen=True)
class Simulated:
    """What simulated runs came to.

    Attributes:
        seeds: How many runs there were.
        operations: Calls whose result was right, counted on every rank.
        steps: Of the simulated processes.
    """

    seeds: int
    operations: int
    steps: int


def file_of(name: str, layout: Layout, root: int, operation: str | None) -> str:
    """The plan file of an algorithm, registered or the library's.

    Raises:
        ciuic.InvalidArgumentError: There is none.
    """
    own = registry.find(name, operation)
    if own is not None:
        return own.file(layout, root if own.operation in registry.ROOTED else 0)
    if operation is None:
        operation = "all_reduce"
    return _native.export_plan(operation, 0, layout.text, 1 << 20, "float32", "sum", name, root)


def _operation_of(name: str, operation: str | None) -> str:
    own = registry.find(name, operation)
    return own.operation if own is not None else operation or "all_reduce"


def _roots(name: str, layout: Layout, root: int | None, operation: str | None) -> range:
    if root is not None:
        return range(root, root + 1)
    own = registry.find(name, operation)
    if _operation_of(name, operation) not in registry.ROOTED:
        return range(1)
    if own is not None and own.make is None:
        only = [its_root for its_layout, its_root in own.files if its_layout == layout]
        if len(only) == 1:
            return range(only[0], only[0] + 1)
    return range(layout.size)


def prove(
    name: str,
    layout: Layout | str | int,
    *,
    operation: str | None = None,
    root: int | None = None,
) -> None:
    """Prove that an algorithm is its operation, on one layout: for every element count, and every
    order in which ranks and links may proceed, also in place (src/plan/prover.h).

    Args:
        name: Of a registered algorithm, or one of the library's.
        layout: A :class:`Layout`, its text such as ``"2x2"``, or a number of ranks on one host.
        operation: Where ``name`` is registered for several. Of the library's own: all_reduce.
        root: ``None``: each rank in turn, where the operation has a root.

    Raises:
        ciuic.InvalidArgumentError: It is wrong; the message names rank, step and block. Or there
            is no such algorithm.
    """
    layout = as_layout(layout)
    for each in _roots(name, layout, root, operation):
        _native.prove_plan(file_of(name, layout, each, operation))


def describe(
    name: str,
    layout: Layout | str | int,
    *,
    bytes: int = 1 << 20,
    dtype: str = "float32",
    op: str = "sum",
    operation: str | None = None,
    root: int = 0,
) -> dict[str, Any]:
    """The steps of all ranks, the bytes that each sends, and ``predicted_us``: how long it may
    take, by the model that the library chooses its own algorithms with.

    Args:
        name, layout, operation: As for :func:`prove`.
        bytes, dtype, op, root: Of the call; ``bytes`` of the largest input of a rank.

    Returns:
        What include/ciuic/plan.h describes.

    Raises:
        As :func:`prove`; it is proved first.
    """
    file = file_of(name, as_layout(layout), root, operation)
    text = _native.describe_plan("", 0, "", bytes, dtype, op, "", 0, -1, file)
    described: dict[str, Any] = json.loads(text)
    return described


def simulate(
    name: str,
    layout: Layout | str | int,
    *,
    seeds: int = 100,
    first_seed: int = 1,
    operation: str | None = None,
    root: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Simulated:
    """Run an algorithm on the library's real engine in a simulated world, where processes are slow
    and links late as each seed draws it, on arrays of any dtype and size; every result is compared
    with a reference.

    Args:
        name, layout, operation, root: As for :func:`prove`; it is proved first.
        seeds: How many runs there are. One seed replays exactly.
        first_seed: Of them.
        progress: Called with the number of runs that have ended.

    Raises:
        SimulationError: A result was wrong, or an operation did not end.
        As :func:`prove`.
    """
    layout = as_layout(layout)
    roots = _roots(name, layout, root, operation)
    files = [file_of(name, layout, each, operation) for each in roots]
    for file in files:
        _native.prove_plan(file)
    return simulate_files(name, files, seeds, first_seed, progress)


def simulate_files(
    name: str,
    files: list[str],
    seeds: int,
    first_seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Simulated:
    """:func:`simulate`, of plan files that are proved."""
    if seeds < 1 or first_seed < 0:
        raise InvalidArgumentError(f"seeds={seeds} from {first_seed} on: one or more are needed")
    operations = steps = 0
    for seed in range(first_seed, first_seed + seeds):
        outcome = _native.simulate_plan(files[seed % len(files)], seed)
        if outcome["failures"]:
            raise SimulationError(
                f"{name} with seed {seed} ({outcome['scenario']}): "
                + "; ".join(outcome["failures"][:5])
            )
        operations += outcome["operations"]
        steps += outcome["steps"]
        progress(seed - first_seed + 1)
    return Simulated(seeds, operations, steps)


def export(
    name: str,
    layout: Layout | str | int,
    path: str | Path | None = None,
    *,
    operation: str | None = None,
    root: int = 0,
) -> str:
    """The plan file of an algorithm, which :func:`ciuic.plan.load` reads; also written to ``path``.

    One step stands on a line, so that it can be read, changed and compared.
    """
    text = readable(file_of(name, as_layout(layout), root, operation))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def readable(file: str) -> str:
    """A plan file with a step on each line."""
    content = json.loads(file)
    plans = content.pop("plans")
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    ranks = []
    for plan in plans:
        steps = plan.pop("steps")
        fields = ",\n  ".join(
            f"{json.dumps(key)}: {json.dumps(value)}" for key, value in plan.items()
        )
        lines = ",\n   ".join(json.dumps(step) for step in steps)
        ranks.append(f' {{{fields},\n  "steps": [\n   {lines}\n  ]}}')
    return f'{{{head}, "plans": [\n' + ",\n".join(ranks) + "\n]}\n"


def draw(
    name: str,
    layout: Layout | str | int,
    path: str | Path | None = None,
    *,
    bytes: int = 1 << 20,
    operation: str | None = None,
    root: int = 0,
) -> str:
    """The algorithm as an SVG picture: a row for each rank, a box for each step, an arrow for each
    message; also written to ``path``. Arguments and errors as of :func:`describe`.
    """
    described = describe(name, layout, bytes=bytes, operation=operation, root=root)
    text = drawing.svg(described, as_layout(layout))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
