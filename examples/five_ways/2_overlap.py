# SPDX-License-Identifier: Apache-2.0
"""Overlap: reduce one tensor while computing on another.

The tensor that is being reduced is neither read nor written until the wait.

    ciuic run -n 2 examples/five_ways/2_overlap.py
"""

import time

import ciuic
import torch
from ciuic import CiuicContext, all_reduce_async, all_reduce_wait

ROUNDS = 15

ctx = CiuicContext()
device = ciuic.local_device()
gradient = torch.empty(4 << 20, device=device)  # 16 MiB
weights, batch = torch.randn(512, 512, device=device), torch.randn(512, 512, device=device)


def compute(steps: int) -> torch.Tensor:
    result = batch
    for _ in range(steps):
        result = torch.tanh(result @ weights)
    return result


def seconds_of(function, *arguments) -> float:
    ctx.barrier()
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def reduce_alone() -> None:
    all_reduce_wait(all_reduce_async(gradient.fill_(1.0), op=CiuicContext.SUM, context=ctx))


def overlapped(steps: int) -> None:
    handle = all_reduce_async(gradient.fill_(1.0), op=CiuicContext.SUM, context=ctx)
    compute(steps)
    all_reduce_wait(handle)


# As much computing as hides the communication, alike on all ranks.
reduce_s = min(seconds_of(reduce_alone) for _ in range(4))
step_s = min(seconds_of(compute, 1) for _ in range(4))
steps = torch.tensor([max(1, round(reduce_s / step_s))])
steps = int(ctx.broadcast(steps, src=0))

samples = [
    (seconds_of(compute, steps), seconds_of(reduce_alone), seconds_of(overlapped, steps))
    for _ in range(ROUNDS)
]
assert (gradient == ctx.world_size).all()
columns = zip(*samples, strict=True)
compute_ms, reduce_ms, both_ms = (sorted(column)[ROUNDS // 2] * 1e3 for column in columns)
if ctx.rank == 0:
    print(f"{ctx.world_size} ranks, 16 MiB, median of {ROUNDS}")
    print(f"  computing alone         {compute_ms:7.1f} ms")
    print(f"  reducing alone          {reduce_ms:7.1f} ms")
    print(f"  one after the other     {compute_ms + reduce_ms:7.1f} ms")
    print(f"  overlapped              {both_ms:7.1f} ms")
    exposed_ms = max(0.0, both_ms - compute_ms)
    print(f"  communication that shows {exposed_ms:6.1f} ms of {reduce_ms:.1f} ms")
