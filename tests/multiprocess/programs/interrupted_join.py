# SPDX-License-Identifier: Apache-2.0
"""Waits for a peer that never comes, until Ctrl-C.

``python``: rank 1, in a store that is a Python object. ``native``: rank 0, for a connection.
"""

import sys
import threading

from ciuic import CiuicContext


class Store:
    """Says when the join waits in it."""

    name = "waiting"

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._said = False

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def get(self, key: str, timeout_ms: int) -> bytes:
        if key in self._values:
            return self._values[key]
        if not self._said:
            self._said = True
            print("joining", flush=True)
        threading.Event().wait(timeout_ms / 1000)
        raise TimeoutError(key)


try:
    if sys.argv[1] == "python":
        CiuicContext(world_size=2, rank=1, timeout_s=100, store=Store())
    else:
        print("joining", flush=True)
        CiuicContext(world_size=2, rank=0, timeout_s=100)
except KeyboardInterrupt:
    print("interrupted", flush=True)
