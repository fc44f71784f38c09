# SPDX-License-Identifier: Apache-2.0
"""Under ``ciuic run --init``: torch.distributed is ready, and contexts meet in its store."""

import os

import torch
from ciuic import CiuicContext, all_reduce

assert torch.distributed.is_initialized()
assert torch.distributed.get_backend() == "ciuic"
assert "CIUIC_INIT" not in os.environ
rank = torch.distributed.get_rank()
assert rank == int(os.environ["RANK"])

ctx = CiuicContext(world_size=torch.distributed.get_world_size(), rank=rank, backend="auto")
assert ctx.describe()["store"] == "torch"
x = torch.ones(4)
assert all_reduce(x, op=CiuicContext.SUM, context=ctx) is x
assert (x == ctx.world_size).all()
torch.distributed.all_reduce(x)
assert (x == ctx.world_size**2).all()
print("all good")
