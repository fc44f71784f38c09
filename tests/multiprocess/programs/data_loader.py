# SPDX-License-Identifier: Apache-2.0
"""Collectives while forked DataLoader workers live, which are refused the context and told why."""

import os

import ciuic
import torch
from ciuic import CiuicContext
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH = 64, 4

ctx = CiuicContext(timeout_s=120)
ctx.barrier()


def refusals() -> int:
    """How many of the ways to use the parent's context raise ClosedError for the fork."""
    refused = 0
    for call in (
        ctx.barrier,
        ctx.barrier_async,
        lambda: ciuic.all_reduce(torch.ones(2), context=ctx),
        lambda: ctx.all_gather(torch.ones(2)),
    ):
        try:
            call()
        except ciuic.ClosedError as error:
            refused += "fork" in str(error)
    return refused


class Samples(Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), float(refusals()), float(os.getpid())])


loader = DataLoader(
    Samples(), BATCH, num_workers=2, multiprocessing_context="fork", persistent_workers=True
)
for _ in range(2):
    # Under way while the workers are forked, at the first pass.
    under_way = ctx.all_reduce_async(torch.full((300_000,), ctx.rank + 1.0))
    for number, batch in enumerate(loader):
        assert (batch[:, 1] == 4).all(), batch
        assert (batch[:, 2] != os.getpid()).all()
        x = batch[:, 0].clone() * (ctx.rank + 1)
        ctx.all_reduce(x)
        factor = ctx.world_size * (ctx.world_size + 1) / 2
        first = number * BATCH
        assert x.tolist() == [(first + i) * factor for i in range(BATCH)]
    reduced = under_way.wait()
    assert (reduced == ctx.world_size * (ctx.world_size + 1) / 2).all()
ctx.barrier()
print("all good", flush=True)
