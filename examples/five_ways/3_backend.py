# SPDX-License-Identifier: Apache-2.0
"""The backend by the hardware, then a gather of something small from every rank.

ciuic run -n 2 examples/five_ways/3_backend.py
"""

import time

import ciuic
import torch
from ciuic import CiuicContext

ctx = CiuicContext(backend="auto")  # says what it took
x = torch.tensor([ctx.rank * 10], device=ciuic.local_device())

ranks = ctx.all_gather(x)
assert [int(value) for value in ranks] == [rank * 10 for rank in range(ctx.world_size)]

times = []
for _ in range(300):
    ctx.barrier()
    start = time.perf_counter()
    ctx.all_gather(x)
    times.append(time.perf_counter() - start)
if ctx.rank == 0:
    taken = ctx.describe()
    print(f"backend {ctx.backend}, transports {', '.join(taken['transports']) or 'none needed'}")
    print(f"all_gather gave {[int(value) for value in ranks]}")
    print(f"  median of 300: {sorted(times)[150] * 1e6:.1f} us for one number of each rank")
