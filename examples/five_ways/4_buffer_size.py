# SPDX-License-Identifier: Apache-2.0
"""Staging memory: what `buffer_size` costs and gains, reducing to rank 0.

ciuic run -n 2 examples/five_ways/4_buffer_size.py
"""

import time

import ciuic
import torch
from ciuic import CiuicContext

ROUNDS = 7

x = torch.ones(4 << 20, device=ciuic.local_device())  # 16 MiB


def measure(buffer_size: int) -> tuple[int, float, int]:
    """Rank; median milliseconds of a reduce to rank 0; most bytes held after one."""
    with CiuicContext(buffer_size=buffer_size) as ctx:
        times, held = [], 0
        for _ in range(ROUNDS):
            ctx.barrier()
            start = time.perf_counter()
            result = ctx.reduce(x, dst=0, op=CiuicContext.SUM)
            ctx.barrier()
            times.append(time.perf_counter() - start)
            held = max(held, ctx.memory_usage()["total"])
            assert (result is None) == (ctx.rank != 0)
            assert result is None or bool((result == ctx.world_size).all())
        assert bool((x == 1).all())  # the input is left as it was
        return ctx.rank, sorted(times)[ROUNDS // 2] * 1e3, held


for buffer_size in (1 << 20, 1 << 23, 1 << 26):
    rank, milliseconds, held = measure(buffer_size)
    if rank == 0:
        print(
            f"buffer_size {buffer_size >> 20:3d} MiB: reduce of 16 MiB in {milliseconds:6.1f} ms, "
            f"{held / (1 << 20):5.2f} MiB held"
        )
