# SPDX-License-Identifier: Apache-2.0
"""Algorithms of your own: written in a few lines, proved, costed, simulated, drawn, run, benched.

>>> from ciuic import plan
>>> def everyone(layout, rank, root):
...     others = [peer for peer in range(layout.size) if peer != rank]
...     mine = plan.Plan(input=1, output=1)
...     mine.send(others, plan.input(0))
...     mine.reduce(others, rank, plan.input(0), plan.output(0), received_raw=True, final=True)
...     return mine
>>> plan.register("everyone", everyone)
>>> plan.prove("everyone", "2x2")
>>> plan.describe("everyone", "2x2", bytes=1024)["totals"]["messages"]
12

``context.all_reduce(x, algorithm="everyone")`` then runs it. docs/plans.md is the tutorial.
"""

from ciuic.plan.builder import (
    BlockRange,
    Partition,
    Plan,
    input,
    inputs,
    nothing,
    output,
    outputs,
    scratch,
    scratches,
)
from ciuic.plan.layout import Layout
from ciuic.plan.registry import load, register, registered, unregister
from ciuic.plan.trials import (
    Simulated,
    SimulationError,
    describe,
    draw,
    export,
    prove,
    simulate,
)

__all__ = [
    "BlockRange",
    "Layout",
    "Partition",
    "Plan",
    "Simulated",
    "SimulationError",
    "describe",
    "draw",
    "export",
    "input",
    "inputs",
    "load",
    "nothing",
    "output",
    "outputs",
    "prove",
    "register",
    "registered",
    "scratch",
    "scratches",
    "simulate",
    "unregister",
]
