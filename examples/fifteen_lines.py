# SPDX-License-Identifier: Apache-2.0
"""The program of the README: reduce, reduce while computing, gather.

ciuic run -n 2 examples/fifteen_lines.py
"""

import numpy
from ciuic import CiuicContext, all_reduce, all_reduce_async, all_reduce_wait

with CiuicContext(timeout_s=60) as ctx:  # rank and world size come from the launcher
    gradient = numpy.full(1024, ctx.rank + 1.0, dtype=numpy.float32)
    all_reduce(gradient, op=CiuicContext.AVG, context=ctx)  # in place; tensors of torch too
    assert (gradient == (ctx.world_size + 1) / 2).all()

    handle = all_reduce_async(gradient, context=ctx)  # SUM
    squares = [i * i for i in range(1000)]  # ... compute on something else meanwhile
    all_reduce_wait(handle)

    ranks = ctx.all_gather(numpy.array([ctx.rank]))
    if ctx.rank == 0:
        print("ranks:", [int(r[0]) for r in ranks], "over", ctx.describe()["transports"])
