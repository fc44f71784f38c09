# SPDX-License-Identifier: Apache-2.0
"""Merging: ten gradients of 1,024 floats, reduced one by one, and in one call.

ciuic run -n 2 examples/five_ways/1_merge.py
"""

import time

import ciuic
import torch
from ciuic import CiuicContext, all_reduce

ROUNDS = 300

ctx = CiuicContext()
device = ciuic.local_device()
gradients = [torch.full((1024,), ctx.rank + 1.0, device=device) for _ in range(10)]


def one_by_one() -> int:
    for gradient in gradients:
        all_reduce(gradient, op=CiuicContext.AVG, context=ctx)
    return len(gradients)


def merged() -> int:
    all_reduce(gradients, op=CiuicContext.AVG, context=ctx)
    return 1


def median_us(function) -> float:
    times = []
    for _ in range(ROUNDS):
        ctx.barrier()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[ROUNDS // 2] * 1e6


for function in (one_by_one, merged):  # enter the types, touch the memory
    calls = function()
average = (ctx.world_size + 1) / 2
assert all(torch.allclose(g, torch.full_like(g, average)) for g in gradients)

separate_us, merged_us = median_us(one_by_one), median_us(merged)
if ctx.rank == 0:
    print(f"{ctx.world_size} ranks, ten gradients of 1,024 floats, median of {ROUNDS}")
    print(f"  one by one  10 calls  {separate_us:8.1f} us")
    print(f"  merged       1 call   {merged_us:8.1f} us")
    print(f"  merging takes {merged_us / separate_us:.2f} of the time")
