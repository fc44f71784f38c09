# SPDX-License-Identifier: Apache-2.0
"""Rank 0 calls each operation in a group of its own; rank 1 joins them all, and calls none.

Arguments, as JSON: those of the groups, those of the calls, and which operations. Rank 0 prints, as
JSON, for each operation what it was told, after how many seconds, and the time-out that
``describe()`` shows.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy
from ciuic import CiuicContext, CiuicError, Handle

CALLS: dict[str, Callable[..., object]] = {
    "all_reduce": lambda ctx, x, **how: ctx.all_reduce(x, **how),
    "all_reduce_async": lambda ctx, x, **how: ctx.all_reduce_async(x, **how),
    "reduce": lambda ctx, x, **how: ctx.reduce(x, dst=0, **how),
    "reduce_async": lambda ctx, x, **how: ctx.reduce_async(x, dst=0, **how),
    "broadcast": lambda ctx, x, **how: ctx.broadcast(x, src=1, **how),
    "broadcast_async": lambda ctx, x, **how: ctx.broadcast_async(x, src=1, **how),
    "all_gather": lambda ctx, x, **how: ctx.all_gather(x, **how),
    "all_gather_async": lambda ctx, x, **how: ctx.all_gather_async(x, **how),
    "barrier": lambda ctx, x, **how: ctx.barrier(**how),
    "barrier_async": lambda ctx, x, **how: ctx.barrier_async(**how),
}


def main() -> None:
    of_group, of_call, names = (json.loads(text) for text in sys.argv[1:])
    left_open = []
    for name in names:
        ctx = CiuicContext(**of_group)
        left_open.append(ctx)
        if ctx.rank != 0:
            continue
        start = time.monotonic()
        try:
            result = CALLS[name](ctx, numpy.ones(8, numpy.float32), **of_call)
            if isinstance(result, Handle):
                result.wait()
            said = "nothing"
        except CiuicError as error:
            said = f"{type(error).__name__}: {error}"
        after_s = time.monotonic() - start
        shown = ctx.describe()["timeout_ms"]
        told = {"call": name, "said": said, "after_s": after_s, "timeout_ms": shown}
        print(json.dumps(told), flush=True)
    if left_open[-1].rank != 0:
        sys.stdin.read()  # is there, and silent, until it is ended


main()
