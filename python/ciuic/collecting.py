# SPDX-License-Identifier: Apache-2.0
"""How a context collects the calls that a thread makes inside a block of :mod:`ciuic.groups`.

A :class:`Collector` then stands in for the context's communicator, so that calls outside of blocks
cost nothing more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from ciuic import _native
from ciuic.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ciuic.context import CiuicContext
    from ciuic.groups import Calls

_ALL_REDUCE = _native.operation_codes["all_reduce"]

_lock = threading.Lock()  # of putting collectors in place, and taking them away


class Collector:
    """What a context has for a communicator while one of its threads collects calls."""

    def __init__(self, communicator: _native.Communicator) -> None:
        self.communicator = communicator
        self.open: dict[int, Calls] = {}  # by thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self.communicator, name)

    def all_reduce(
        self,
        input: int,
        output: int,
        count: int,
        dtype: int,
        op: int,
        timeout_ms: int,
        keep: Any,
        wait_follows: bool = False,
    ) -> Any:
        calls = self.open.get(threading.get_ident())
        if calls is None:
            return self.communicator.all_reduce(
                input, output, count, dtype, op, timeout_ms, keep, wait_follows
            )
        call = _native.Call(_ALL_REDUCE, (input, count), (output, count), dtype, op)
        return calls.add(call, timeout_ms, keep, keep is None or wait_follows)

    def all_reduce_by(
        self,
        algorithm: str,
        input: int,
        output: int,
        count: int,
        dtype: int,
        op: int,
        timeout_ms: int,
        keep: Any,
        wait_follows: bool = False,
    ) -> Any:
        calls = self.open.get(threading.get_ident())
        if calls is None:
            return self.communicator.all_reduce_by(
                algorithm, input, output, count, dtype, op, timeout_ms, keep, wait_follows
            )
        call = _native.Call(_ALL_REDUCE, (input, count), (output, count), dtype, op)
        call.use(algorithm)
        return calls.add(call, timeout_ms, keep, keep is None or wait_follows)

    def submit(
        self,
        calls: tuple[_native.Call, ...],
        timeout_ms: int,
        keep: Any,
        wait_follows: bool = False,
        of_library: bool = False,
    ) -> Any:
        collected = self.open.get(threading.get_ident())
        if collected is None or of_library:
            return self.communicator.submit(calls, timeout_ms, keep, wait_follows, of_library)
        (call,) = calls
        return collected.add(call, timeout_ms, keep, keep is None or wait_follows)

    def subgroup(self, ranks: list[int], timeout_ms: int) -> Any:
        self._refuse_here("subgroup()")
        return self.communicator.subgroup(ranks, timeout_ms)

    def split(self, color: int, key: int, timeout_ms: int) -> Any:
        self._refuse_here("split()")
        return self.communicator.split(color, key, timeout_ms)

    def shrink(self, timeout_ms: int) -> Any:
        self._refuse_here("shrink()")
        return self.communicator.shrink(timeout_ms)

    def _refuse_here(self, name: str) -> None:
        if threading.get_ident() in self.open:
            raise InvalidArgumentError(
                f"{name} blocks, and calls inside this block are only collected; make it outside. "
                "Nothing was sent."
            )


def here(context: CiuicContext) -> Calls | None:
    """The block in which this thread collects the context's calls."""
    native: Any = context._native
    return native.open.get(threading.get_ident()) if type(native) is Collector else None


def is_here(context: CiuicContext) -> bool:
    return here(context) is not None


def begin(context: CiuicContext, calls: Calls) -> bool:
    """From now on ``calls`` collects what this thread calls. False: something else does already."""
    thread = threading.get_ident()
    with _lock:
        native: Any = context._native
        if type(native) is not Collector:
            native = Collector(native)
        elif thread in native.open:
            return False
        native.open[thread] = calls
        context._native = cast(_native.Communicator, native)
    return True


def end(context: CiuicContext, calls: Calls) -> None:
    """The opposite of :func:`begin`."""
    with _lock:
        native: Any = context._native
        for thread in [thread for thread, each in native.open.items() if each is calls]:
            del native.open[thread]
        if not native.open:
            context._native = native.communicator
