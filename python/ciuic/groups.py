# SPDX-License-Identifier: Apache-2.0
"""Several calls as one: :func:`coalesce` makes them together, once; :func:`persistent` prepares
them, to be made together any number of times.

Inside the block the context's ``_async`` calls are only collected (:mod:`ciuic.collecting`). Other
threads use the context as ever meanwhile.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ciuic import _native, buckets, collecting
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.errors import InvalidArgumentError
from ciuic.handles import Handle, PendingWork
from ciuic.submission import refuse

if TYPE_CHECKING:
    from ciuic.context import CiuicContext


def coalesce(
    context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> CoalescedCalls:
    """Collect the context's ``_async`` calls inside a ``with`` block, and make them all at its end.

    They are one piece of work: sends and receives of a batch cannot deadlock, in whatever order
    they stand, and small operations cost less together. Ranks need not coalesce alike, as long as
    they make the same calls in the same order. Handles that calls inside the block gave are good
    after it; the block itself does not wait. Where a call is refused, or the block ends with an
    error, nothing was sent.

    Args:
        context: The group of ranks. ``None`` takes the process's default context.
        timeout_s: Seconds from the end of the block to that of all calls. ``None`` takes the
            context's.

    Returns:
        A context manager, whose ``wait()`` waits for all calls, and ``done()`` tells whether that
        would return at once.

    Raises:
        ValueError: A call inside that blocks, has a ``timeout_s`` of its own, or receives from any
            source beside other receives; another block inside. Nothing was sent.

    Source: ``Communicator::submit``.

    >>> with ctx.coalesce() as group:                    # doctest: +SKIP
    ...     ctx.send_async(mine, dst=right)
    ...     ctx.recv_async(theirs, src=left)
    >>> group.wait()                                     # doctest: +SKIP
    """
    return CoalescedCalls(contexts.of(context), contexts.milliseconds(timeout_s))


def persistent(
    context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> PersistentCalls:
    """Prepare the context's ``_async`` calls inside a ``with`` block, to be made again and again.

    Arguments are checked and algorithms chosen at the end of the block, where nothing is sent yet;
    :meth:`PersistentCalls.start` then makes all calls on the same arrays, with the values that they
    have by then. What a call inside gives as new arrays is made once: ``wait()`` of its handle
    returns it after a start, and the next start overwrites it.

    Args:
        context: The group of ranks. ``None`` takes the process's default context.
        timeout_s: Seconds from a start to its end. ``None`` takes the context's.

    Returns:
        A context manager with ``start()`` and ``run()``.

    Raises:
        ValueError: As :func:`coalesce`; also where an array is not contiguous, or a list of arrays
            does not lie in one piece, since a copy of them would not be read again. Nothing was
            sent.

    Source: ``Communicator::persistent``.

    >>> with ctx.persistent() as step:                   # doctest: +SKIP
    ...     ctx.all_reduce_async(gradient)
    >>> for batch in batches:                            # doctest: +SKIP
    ...     compute(gradient)
    ...     step.run()
    """
    return PersistentCalls(contexts.of(context), contexts.milliseconds(timeout_s))


class Calls:
    """Calls that are collected inside a ``with`` block."""

    _block = ""
    _copies_are_fine = True

    def __init__(self, context: CiuicContext, timeout_ms: int) -> None:
        self._context = context
        self._timeout_ms = timeout_ms
        self._calls: list[_native.Call] = []
        self._keep: list[Any] = []
        self._handles: list[Handle] = []  # with something to do when the calls have ended
        self._receives = 0
        self._from_any = False
        self._state = "new"  # then "open", then "made" or "nothing was sent"
        self._work: _native.Work | None = None

    def __enter__(self) -> Any:
        if self._state != "new":
            raise refuse(f"a block of {self._block} cannot be entered again; make a new one")
        if not collecting.begin(self._context, self):
            raise refuse(f"{self._block} inside another block of this context; end that one first")
        self._state = "open"
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        collecting.end(self._context, self)
        self._state = "nothing was sent"
        if exception_type is None:
            self._make()
            self._state = "made"

    def __len__(self) -> int:
        """How many calls were collected."""
        return len(self._calls)

    def add(self, call: _native.Call, timeout_ms: int, keep: Any, blocks: bool) -> PendingWork:
        """One call of this thread, inside the block."""
        if blocks:
            raise refuse(
                f"a call that blocks, inside {self._block}; make its _async form there, or make it "
                "outside"
            )
        if timeout_ms != -1:
            raise refuse(f"timeout_s inside {self._block}; it is the block's, give it there")
        parts = keep if isinstance(keep, tuple) else ()
        if not self._copies_are_fine and _has_copy(parts):
            raise refuse(
                f"an array inside {self._block} that is not contiguous, or a list of arrays that "
                "do not lie in one piece; give x.contiguous(), or one array for all"
            )
        self._calls.append(call)
        self._keep.append(keep)
        return PendingWork(self)

    def note_receive(self, from_any: bool) -> None:
        """A receive is about to be collected."""
        if (self._receives > 0 and from_any) or self._from_any:
            raise refuse(
                f"several receives inside {self._block}, one of them from any source or with any "
                "tag: whose message it got could not be told; give src and tag, or receive outside"
            )
        self._receives += 1
        self._from_any = from_any

    def finish_with(self, handle: Handle) -> None:
        """``handle`` has something to do when the calls have ended."""
        if not self._handles or self._handles[-1] is not handle:
            self._handles.append(handle)

    def has_work(self) -> bool:
        return self._work is not None

    def work(self) -> _native.Work:
        """That of the calls, which have been made."""
        if self._work is None:
            raise InvalidArgumentError(self._why_no_work())
        return self._work

    def _why_no_work(self) -> str:
        if self._state in ("new", "open"):
            return f"the block of {self._block} has not ended; wait after it. Nothing was sent."
        return f"the block of {self._block} ended with an error. Nothing was sent."

    def _make(self) -> None:
        raise NotImplementedError


class CoalescedCalls(Calls):
    """Calls that are made together at the end of the block. See :func:`coalesce`."""

    _block = "coalesce()"

    def _make(self) -> None:
        keep = tuple(self._keep)
        self._keep.clear()
        self._work = self._context._native.submit(tuple(self._calls), self._timeout_ms, keep)

    def wait(self) -> None:
        """Blocks until all calls have ended on this rank. May be called again, by any thread.

        Raises:
            As :meth:`ciuic.Handle.wait`.
        """
        self.work().wait()
        for handle in self._handles:
            handle.wait()

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once. Never blocks."""
        return self.has_work() and self.work().done()


class PersistentCalls(Calls):
    """Calls that are made together at each start. See :func:`persistent`."""

    _block = "persistent()"
    _copies_are_fine = False
    _to_start: _native.Persistent | None = None
    _to_run: _native.Persistent | None = None  # where the wait follows; made when first needed

    def _make(self) -> None:
        self._to_start = self._prepare(wait_follows=False)

    def _prepare(self, wait_follows: bool) -> _native.Persistent:
        return self._context._native.persistent(
            tuple(self._calls), self._timeout_ms, wait_follows, tuple(self._keep)
        )

    def _start(self, prepared: _native.Persistent) -> _native.Work:
        if collecting.is_here(self._context):
            raise refuse(f"a start of {self._block} inside another block; start it outside")
        if self._work is not None and not self._work.done():
            raise refuse(f"{self._block}: what was started before has not ended; wait for it first")
        self._work = prepared.start()
        return self._work

    def start(self) -> Handle:
        """Make the calls, as if they were made now, and return at once.

        All ranks start theirs in the same order. Until ``wait()`` of the handle the arrays are
        neither read nor written by the caller.

        Raises:
            ValueError: What was started before has not ended, or the block has not. Nothing was
                sent. What goes wrong later, ``wait()`` raises.
        """
        if self._to_start is None:
            raise InvalidArgumentError(self._why_no_work())
        return Handle((self._start(self._to_start),), None)

    def run(self) -> None:
        """Make the calls, and wait for their end. Raises as :meth:`start` and its handle."""
        if self._to_run is None:
            if self._to_start is None:
                raise InvalidArgumentError(self._why_no_work())
            self._to_run = self._prepare(wait_follows=True)
        self._start(self._to_run).wait()

    def _why_no_work(self) -> str:
        if self._state == "made":
            return "persistent() was not started yet; start() it first. Nothing was sent."
        return super()._why_no_work()


def _has_copy(parts: tuple[Any, ...]) -> bool:
    """Whether something that is kept for a call is a copy of the caller's arrays."""
    for part in parts:
        if isinstance(part, tuple):
            if _has_copy(part):
                return True
        elif isinstance(part, (Buffer, buckets.Bucket, buckets.Merged)) and part.is_copy:
            return True
    return False
