# SPDX-License-Identifier: Apache-2.0
"""Gradients of parameters: some ranks lack some, no rank has others. Run by all ranks."""

import ciuic
import torch
from ciuic import CiuicContext


def main() -> None:
    ctx = CiuicContext(timeout_s=120)
    rank, size = ctx.rank, ctx.world_size
    for start in (False, True):
        torch.manual_seed(0)
        everywhere = torch.nn.Parameter(torch.ones(3, 4))
        on_one = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        nowhere = torch.nn.Parameter(torch.ones(2))
        strided = torch.nn.Parameter(torch.ones(4, 6))
        parameters = [everywhere, on_one, nowhere, strided]
        everywhere.grad = torch.full((3, 4), rank + 1.0)
        if rank == size - 1:
            on_one.grad = torch.full((5,), 2.0, dtype=torch.bfloat16)
        strided.grad = torch.full((6, 4), rank + 1.0).T if rank else torch.full((4, 6), 1.0)
        if start:
            ciuic.all_reduce_async(iter(parameters), context=ctx).wait()
        else:
            ciuic.all_reduce(parameters, context=ctx)
        total = size * (size + 1) / 2
        assert (everywhere.grad == total).all()
        assert on_one.grad is not None
        assert on_one.grad.dtype == torch.bfloat16
        assert (on_one.grad == 2).all()
        assert nowhere.grad is None
        assert (strided.grad == total).all()
        assert all((p == 1).all() for p in parameters), "values were touched"

    # The dtypes of one gradient differ between ranks: the same error everywhere, and the
    # context is still good.
    odd = torch.nn.Parameter(torch.ones(2, dtype=torch.float64 if rank else torch.float32))
    odd.grad = torch.ones_like(odd)
    try:
        ciuic.all_reduce([odd], context=ctx)
        assert size == 1, "not refused"
    except ValueError as error:
        assert "float64" in str(error) and "float32" in str(error), error
    if size > 1:
        values = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(values.weight, rank)
        ctx.broadcast(values.parameters(), src=1)
        assert (values.weight == 1).all()
    x = torch.full((1000,), rank + 1.0)
    other = torch.ones(10)
    handle = ciuic.all_reduce_async(x, op=CiuicContext.AVG, context=ctx)
    other.add_(1)
    ciuic.all_reduce_wait(handle)
    assert torch.allclose(x, torch.full((1000,), (size + 1) / 2))
    assert [int(t) for t in ctx.all_gather(torch.tensor([rank]))] == list(range(size))
    ctx.close()
    print("all good")


main()
