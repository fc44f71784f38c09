# SPDX-License-Identifier: Apache-2.0
"""Moves arrays that consist of one pattern of bytes, given in hex, by every collective."""

import sys

import numpy
from ciuic import CiuicContext

pattern = numpy.frombuffer(bytes.fromhex(sys.argv[1]), dtype=numpy.uint8)
with CiuicContext(timeout_s=120) as context:
    for repeats in (1, 100, 20_000):  # in its header's packet, in a chunk, in many
        expected = numpy.tile(pattern, repeats)
        x = expected.copy() if context.rank == 0 else numpy.zeros_like(expected)
        context.broadcast(x, src=0)
        assert (x == expected).all()
        context.all_reduce(x, CiuicContext.MAX)
        assert (x == expected).all()
        for other in context.all_gather(x):
            assert (other == expected).all()
        reduced = context.reduce(x, 1, CiuicContext.MIN)
        assert reduced is None or (reduced == expected).all()
    context.barrier()
    print(f"moved {context.rank} {sorted(context.describe()['transports'])}")
