# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads of one process."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ciuic import CiuicContext


def outcomes(ranks: int, call: Callable[[int], Any]) -> list[Any]:
    """What ``call(rank)`` returned on each, or raised."""
    found: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        try:
            found[rank] = call(rank)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def on_all_ranks(ranks: int, call: Callable[[int], Any]) -> list[Any]:
    """What ``call(rank)`` returned on each; raises what was raised first, which brought about what
    the other ranks raised.
    """
    errors: list[BaseException] = []

    def noting(rank: int) -> Any:
        try:
            return call(rank)
        except BaseException as error:
            errors.append(error)
            raise

    found = outcomes(ranks, noting)
    if errors:
        raise errors[0]
    return found


def joined_contexts(ranks: int, folder: Path) -> Iterator[list[CiuicContext]]:
    """A group of so many threads, for a fixture."""

    def join(rank: int) -> CiuicContext:
        store = f"file://{folder}/store"
        return CiuicContext(ranks, rank, store=store, group_name="threads", timeout_s=60)

    joined = on_all_ranks(ranks, join)
    yield joined
    for context in joined:
        context.close()
