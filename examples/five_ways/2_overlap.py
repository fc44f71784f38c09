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


def compute() -> torch.Tensor:
    result = batch
    for _ in range(12):
        result = torch.tanh(result @ weights)
    return result


def measure() -> tuple[float, float, float]:
    """Seconds of computing alone, reducing alone, and both at once."""
    ctx.barrier()
    start = time.perf_counter()
    compute()
    computed = time.perf_counter()

    gradient.fill_(1.0)
    ctx.barrier()
    reducing = time.perf_counter()
    all_reduce_wait(all_reduce_async(gradient, context=ctx))
    reduced = time.perf_counter()

    gradient.fill_(1.0)
    ctx.barrier()
    both = time.perf_counter()
    handle = all_reduce_async(gradient, op=CiuicContext.SUM, context=ctx)
    compute()
    all_reduce_wait(handle)
    end = time.perf_counter()
    assert (gradient == ctx.world_size).all()
    return computed - start, reduced - reducing, end - both


measure()
samples = [measure() for _ in range(ROUNDS)]
columns = zip(*samples, strict=True)
compute_ms, reduce_ms, both_ms = (sorted(column)[ROUNDS // 2] * 1e3 for column in columns)
if ctx.rank == 0:
    print(f"{ctx.world_size} ranks, 16 MiB, median of {ROUNDS}")
    print(f"  computing alone         {compute_ms:7.1f} ms")
    print(f"  reducing alone          {reduce_ms:7.1f} ms")
    print(f"  one after the other     {compute_ms + reduce_ms:7.1f} ms")
    print(f"  overlapped              {both_ms:7.1f} ms")
    exposed_ms = both_ms - compute_ms
    print(f"  communication that shows: {exposed_ms:.1f} ms of {reduce_ms:.1f} ms")
