# SPDX-License-Identifier: Apache-2.0
"""The smallest program: every rank adds up the same three numbers of all.

ciuic run -n 2 examples/hello_all_reduce.py
"""

import numpy
from ciuic import CiuicContext, all_reduce

ctx = CiuicContext()
x = numpy.array([1.0, 2.0, 3.0]) * (ctx.rank + 1)
all_reduce(x, op=CiuicContext.SUM, context=ctx)
print(f"rank {ctx.rank} of {ctx.world_size}: {x.tolist()}")
