# SPDX-License-Identifier: Apache-2.0
"""Which plans there are beside the library's own, and what contexts have of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciuic import _native
from ciuic.errors import InvalidArgumentError
from ciuic.plan.builder import Plan
from ciuic.plan.layout import Layout

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

Maker = Callable[[Layout, int, int], "Plan | Mapping[str, Any]"]

OPERATIONS = tuple(_native.algorithms)
ROOTED = frozenset(_native.rooted_operations)

_NAME = re.compile(r"[A-Za-z_][\w.+-]{0,63}")
_lock = threading.Lock()


@dataclass(frozen=True)
class Registered:
    """An algorithm of the caller's: a function that makes plans, or plans from files."""

    name: str
    operation: str
    make: Maker | None = None
    files: Mapping[tuple[Layout, int], str] = field(default_factory=dict)  # by layout and root

    def file(self, layout: Layout, root: int) -> str:
        """The plan file of all ranks' plans.

        Raises:
            ciuic.InvalidArgumentError: What the function gave is no plan, or there is no file for
                this layout and root.
        """
        if self.make is not None:
            plans = [self._made(layout, rank, root) for rank in range(layout.size)]
            return json.dumps(
                {
                    "operation": self.operation,
                    "layout": layout.text,
                    "root": root,
                    "plans": plans,
                }
            )
        text = self.files.get((layout, root))
        if text is None:
            there = ", ".join(
                f"{known.text}{f' with root {its_root}' if self.operation in ROOTED else ''}"
                for known, its_root in self.files
            )
            with_root = f" with root {root}" if self.operation in ROOTED else ""
            raise InvalidArgumentError(
                f"{self.operation} by {self.name}: no plan file for layout {layout.text}"
                f"{with_root} was loaded; there are some for {there}"
            )
        return text

    def _made(self, layout: Layout, rank: int, root: int) -> dict[str, Any]:
        assert self.make is not None
        made = self.make(layout, rank, root)
        if isinstance(made, Plan):
            return {"algorithm": self.name, **made.as_dict()}
        if not isinstance(made, Mapping):
            raise InvalidArgumentError(
                f"{self.operation} by {self.name}: its function gave {type(made).__name__} for "
                f"rank {rank}, no Plan and no dict"
            )
        named = made.get("algorithm", self.name)
        if named != self.name:
            raise InvalidArgumentError(
                f"{self.operation} by {self.name}: the plan of rank {rank} is of {named!r}"
            )
        return {"algorithm": self.name, "input_offset": 0, **made}


_registered: dict[tuple[str, str], Registered] = {}  # by operation and name


def _check(operation: str, name: str) -> None:
    if operation not in OPERATIONS:
        raise InvalidArgumentError(f"no operation {operation!r}; there are {', '.join(OPERATIONS)}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is no name for an algorithm: letters, digits and ._+-, 64 at most"
        )
    if any(name in known for known in _native.algorithms.values()):
        raise InvalidArgumentError(f"{name!r} is an algorithm of the library; take another name")


def register(name: str, fn: Maker, operation: str = "all_reduce") -> None:
    """Make an algorithm known under ``name``, in place of one registered before.

    From then on ``context.all_reduce(x, algorithm=name)`` and the like are carried out by it, once
    it is proved for the context's layout: on first use, before anything is sent.

    Args:
        name: Letters, digits and ``._+-``; none of the library's own.
        fn: ``fn(layout, rank, root)`` gives the plan of one rank, a :class:`Plan` or a dict as plan
            files have it. ``root`` is 0 where the operation has none. It is called for every rank,
            on every rank, and must give the same each time.
        operation: Of which this is an algorithm.

    Raises:
        ciuic.InvalidArgumentError: A name or operation that cannot be.
    """
    _check(operation, name)
    if not callable(fn):
        raise InvalidArgumentError(f"fn={fn!r} is no function of (layout, rank, root)")
    with _lock:
        _registered[operation, name] = Registered(name, operation, fn)


def unregister(name: str, operation: str = "all_reduce") -> None:
    """Forget an algorithm. Contexts that have used it keep its plans."""
    with _lock:
        _registered.pop((operation, name), None)


def load(path: str | Path, name: str | None = None) -> str:
    """Register the plans of a file, for its operation, layout and root. Several files may share a
    name; the layout and the root tell which of them is meant.

    Args:
        path: A plan file, as ``ciuic plan --export`` and :func:`ciuic.plan.export` write them.
        name: Instead of the algorithm that the file names.

    Returns:
        The name.

    Raises:
        ciuic.InvalidArgumentError: It is no plan file, or names an algorithm of the library's.
        OSError: It cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        file = json.loads(text)
        plans = file["plans"]
        name = plans[0]["algorithm"] if name is None else name
        for plan in plans:
            plan["algorithm"] = name
        operation = file["operation"]
        key = (Layout.parse(file["layout"]), file.get("root", 0))
    except (json.JSONDecodeError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is no plan file: {error!r}") from None
    _check(operation, name)
    with _lock:
        before = _registered.get((operation, name))
        files = dict(before.files) if before is not None else {}
        files[key] = json.dumps(file)
        _registered[operation, name] = Registered(name, operation, None, files)
    return name


def registered() -> dict[str, list[str]]:
    """The names, by operation."""
    names: dict[str, list[str]] = {}
    for operation, name in sorted(_registered):
        names.setdefault(operation, []).append(name)
    return names


def find(name: str, operation: str | None = None) -> Registered | None:
    """What is registered; ``None`` where that is nothing.

    Raises:
        ciuic.InvalidArgumentError: It is registered for several operations, and none is given.
    """
    if operation is not None:
        return _registered.get((operation, name))
    found = [each for (_, known), each in _registered.items() if known == name]
    if len(found) > 1:
        names = ", ".join(each.operation for each in found)
        raise InvalidArgumentError(f"{name} is registered for {names}; say which operation")
    return found[0] if found else None


def add_to(context: CiuicContext, operation: str, name: str, root: int) -> None:
    """Gives the context's communicator the plans of a registered algorithm, where it has not got
    them yet. Of a name that is not registered the communicator says itself what it knows.

    Raises:
        ciuic.InvalidArgumentError: The plans are wrong. Nothing was sent.
    """
    own = _registered.get((operation, name))
    if own is None:
        return
    key = (operation, name, root if operation in ROOTED else 0)
    if context._plans.get(key) is own:
        return
    file = own.file(Layout.parse(context.describe()["layout"]), key[2])
    context._native.add_plan(file)
    context._plans[key] = own
