# SPDX-License-Identifier: Apache-2.0
"""What an asynchronous call gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ciuic import _native


class Handle:
    """An operation under way. It keeps the arrays alive until the operation has ended.

    Until :meth:`wait` has returned, the arrays are neither read nor written by the caller.
    """

    __slots__ = ("_finish", "_finishing", "_result", "_works")

    def __init__(
        self,
        works: Sequence[_native.Work],
        result: Any,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self._works = works
        self._result = result
        self._finish = finish
        self._finishing = None if finish is None else threading.RLock()

    def wait(self) -> Any:
        """Blocks until the operation has ended on this rank. May be called again, by any thread.

        Returns:
            What the blocking call returns: the array, the list of arrays, or None.

        Raises:
            ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError: The
                arrays are undefined, and the context takes no more work.
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
