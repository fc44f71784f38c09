# SPDX-License-Identifier: Apache-2.0
"""Rank 0 gets no shared memory when it joins: an error with the numbers on every rank, at once.
With the limit lifted all works.
"""

import resource

import ciuic
import numpy
from ciuic import CiuicContext

LIMIT = 4096

ctx = CiuicContext(timeout_s=100)
before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
if ctx.rank == 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))  # memfds are files
try:
    CiuicContext(timeout_s=100)
except ciuic.ResourceError as error:
    assert "bytes: " in str(error), error
    assert f"RLIMIT_FSIZE (ulimit -f) allows {LIMIT} bytes" in str(error), error
else:
    raise AssertionError("no error")
resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))

ctx.barrier()  # a group that there was before is as it was
x = CiuicContext(timeout_s=100).all_reduce(numpy.ones(1_000_000))
assert (x == ctx.world_size).all()
print("all good", flush=True)
