# SPDX-License-Identifier: Apache-2.0
"""An all-reduce of one's own: every rank shows its array to all others, and adds up what it sees.

ciuic plan --module examples/own_plan.py -n 4 --prove --simulate 20 --draw own_plan.svg
ciuic run -n 4 examples/own_plan.py
ciuic bench --module examples/own_plan.py -n 2 --sizes 8,64K

docs/plans.md explains it line by line.
"""

from ciuic import plan
from ciuic.plan import Layout, Plan, input, output, scratch


def everyone(layout: Layout, rank: int, root: int) -> Plan:
    others = [peer for peer in range(layout.size) if peer != rank]
    mine = Plan(input=1, output=1, scratch=1)
    if not others:
        mine.copy(input(0), output(0))
        return mine
    mine.send(others, input(0))
    # In rank order on every rank, so that all get the same bits. Into scratch, since the output may
    # be the memory of the input, which others still read.
    mine.reduce(
        others, own_place=rank, own=input(0), target=scratch(0), received_raw=True, final=True
    )
    mine.copy(scratch(0), output(0))
    return mine


plan.register("everyone", everyone)

if __name__ == "__main__":
    import numpy
    from ciuic import CiuicContext

    with CiuicContext() as ctx:
        x = numpy.array([1.0, 2.0, 3.0]) * (ctx.rank + 1)
        ctx.all_reduce(x, algorithm="everyone")
        print(f"rank {ctx.rank} of {ctx.world_size}: {x.tolist()}")
