# SPDX-License-Identifier: Apache-2.0
"""What an asynchronous call gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ciuic.groups import Calls


class AnyWork(Protocol):
    """A Work of the core, or what stands for one that is still to come."""

    def wait(self) -> None: ...

    def done(self) -> bool: ...

    @property
    def source(self) -> int: ...

    @property
    def tag(self) -> int: ...


class Handle:
    """An operation under way. It keeps the arrays alive until the operation has ended.

    Until :meth:`wait` has returned, the arrays are neither read nor written by the caller.
    """

    __slots__ = ("_finish", "_finishing", "_result", "_works")

    def __init__(
        self,
        works: Sequence[AnyWork],
        result: Any,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self._works = works
        self._result = result
        self._finish = finish
        self._finishing = None if finish is None else threading.RLock()
        if finish is not None:
            for work in works:
                if type(work) is PendingWork:
                    work.calls.finish_with(self)

    def wait(self) -> Any:
        """Blocks until the operation has ended on this rank. May be called again, by any thread.

        Returns:
            What the blocking call returns: the array, the list of arrays, or None.

        Raises:
            ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError: The
                arrays are undefined, and the context takes no more work.
            ValueError: Of a call inside ``coalesce()`` or ``persistent()``: the block has not
                ended, or it ended with an error and nothing was sent.
        """
        for work in self._works:
            work.wait()
        if self._finishing is not None:
            with self._finishing:  # no thread returns before the results are where they belong
                if self._finish is not None:
                    self._finish()
                    self._finish = None
        return self._result

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once. Never blocks."""
        return all(work.done() for work in self._works)


class ReceiveHandle(Handle):
    """A receive under way: its ``wait()`` gives the rank whose message came."""

    __slots__ = ("_source", "_tag")

    def __init__(
        self,
        work: AnyWork,
        source: int | None,
        tag: int | None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        super().__init__((work,), None, finish)
        self._source = source
        self._tag = tag

    def wait(self) -> Any:
        super().wait()
        return self.source

    @property
    def source(self) -> int | None:
        """The rank whose message came; ``None`` while it is not known."""
        if self._source is not None:
            return self._source
        source = self._works[0].source
        return None if source < 0 else source

    @property
    def tag(self) -> int | None:
        """The message's tag; ``None`` while it is not known."""
        if self._tag is not None:
            return self._tag
        tag = self._works[0].tag
        return None if tag < 0 else tag


class PendingWork:
    """Stands for the Work of calls that are collected, and that has not been started yet."""

    __slots__ = ("calls",)

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def wait(self) -> None:
        self.calls.work().wait()

    def done(self) -> bool:
        return self.calls.has_work() and self.calls.work().done()

    @property
    def source(self) -> int:
        return self.calls.work().source if self.calls.has_work() else -1

    @property
    def tag(self) -> int:
        return self.calls.work().tag if self.calls.has_work() else -1
