# SPDX-License-Identifier: Apache-2.0
"""A group that wants NCCL where a library is missing: an error on every rank, at the join."""

import ciuic

try:
    ciuic.CiuicContext(backend="nccl", timeout_s=60)
except ciuic.UnavailableError as error:
    print(error)
else:
    raise AssertionError("there was no library")

with ciuic.CiuicContext(timeout_s=60) as ctx:
    assert ctx.backend == "native"
    assert "no NCCL" in ctx.describe()["backend_why"], ctx.describe()["backend_why"]
    ctx.barrier()
