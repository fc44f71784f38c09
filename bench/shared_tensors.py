# SPDX-License-Identifier: Apache-2.0
"""What shared tensors gain: each call on ordinary and on shared arrays in turn, in one run.

    ciuic run -n 2 bench/shared_tensors.py [--ops all_reduce,all_gather] [--sizes 65536,...]

Median microseconds of a call over the rounds, of rank 0. ``--touch`` lets each rank rewrite its
array before every call, as a training step does.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy
from ciuic import CiuicContext


def calls(ctx: CiuicContext, op: str, size: int, shared: bool) -> tuple[Callable[[], object], ...]:
    """The call to time, and one that rewrites what it reads."""
    make = ctx.empty if shared else numpy.empty
    x = make(size // 4, numpy.float32)
    x.fill(0)
    if op == "all_reduce":
        return lambda: ctx.all_reduce(x), lambda: x.fill(0)
    if op == "all_gather":
        # Into one array that is there, as a training step has it.
        from ciuic import _native

        out = make(size // 4 * ctx.world_size, numpy.float32)
        out.fill(0)
        number = _native.operation_codes["all_gather"]
        call = _native.Call(number, (x.ctypes.data, x.size), (out.ctypes.data, out.size), 0)
        return lambda keep=out: ctx._native.submit([call], -1, None), lambda: x.fill(0)
    if op == "broadcast":
        return lambda: ctx.broadcast(x), lambda: x.fill(0)
    if op == "send":
        other = 1 - ctx.rank
        send = ctx.rank == 0
        return lambda: ctx.send(x, other) if send else ctx.recv(x, other), lambda: x.fill(0)
    return lambda: getattr(ctx, op)(x), lambda: x.fill(0)


def timed(ctx: CiuicContext, made: tuple[Callable[[], object], ...], rounds: int, touch: bool):
    call, rewrite = made
    times = []
    for _ in range(rounds):
        if touch:
            rewrite()
            ctx.barrier()
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="all_reduce,all_gather")
    parser.add_argument("--sizes", default=",".join(str(1 << k) for k in range(14, 27, 2)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--touch", action="store_true")
    given = parser.parse_args()
    with CiuicContext() as ctx:
        for op in given.ops.split(","):
            for size in map(int, given.sizes.split(",")):
                kinds = [calls(ctx, op, size, shared) for shared in (False, True)]
                number = max(3, min(200, (16 << 20) // size))
                times: list[list[float]] = [[], []]
                for made in kinds:
                    timed(ctx, made, 5, given.touch)
                for _ in range(given.rounds):
                    for which, made in enumerate(kinds):
                        ctx.barrier()
                        times[which] += timed(ctx, made, number, given.touch)
                if ctx.rank == 0:
                    ordinary, shared = map(statistics.median, times)
                    print(
                        f"{op:14} {size:>10} B  ordinary {ordinary:10.1f} us  "
                        f"shared {shared:10.1f} us  ratio {shared / ordinary:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
