# SPDX-License-Identifier: Apache-2.0
"""operations.py BACKEND: every operation of a CiuicContext on CUDA tensors, of all sizes.

Ranks share a GPU, or have one each, as ``ciuic.local_device()`` has it.
"""

import os
import sys

if "FAKE_GPU_LIBRARY" in os.environ:  # tests/torch_backend/fake_gpus.py
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch_backend"))
    import fake_gpus

    NUMBER = int(os.environ.get("DEVICE", "cuda:" + os.environ["RANK"]).removeprefix("cuda:"))
    assert fake_gpus.preload(os.environ["FAKE_GPU_LIBRARY"]).cudaSetDevice(NUMBER) == 0
    os.environ["DEVICE"] = f"cuda:{NUMBER}"

import ciuic
import torch
from ciuic import CiuicContext

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8)
COUNTS = (0, 1, 1000, 3_000_000)


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.is_cuda and got.dtype == wanted.dtype and got.shape == wanted.shape, (got, wanted)
    assert torch.equal(got.cpu(), wanted.cpu()), (got, wanted)


def of(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(count) % 5 + rank + 1).to(dtype)


def check(ctx: CiuicContext, count: int, dtype: torch.dtype) -> None:
    rank, size = ctx.rank, ctx.world_size
    ranks = range(size)

    def mine(length: int = count) -> torch.Tensor:
        return of(rank, length, dtype).to(DEVICE)

    total = sum(of(r, count, dtype) for r in ranks).to(dtype)
    same(ctx.all_reduce(mine()), total)
    x = mine()
    ctx.all_reduce_async(x).wait()
    same(x, total)
    highest = ctx.all_reduce(mine(), op=ctx.MAX)
    same(highest, of(size - 1, count, dtype))
    if dtype.is_floating_point:
        average = ctx.all_reduce(
            torch.full((count,), 2.0 * rank, dtype=dtype, device=DEVICE), ctx.AVG
        )
        same(average, torch.full((count,), size - 1.0, dtype=dtype))
    reduced = ctx.reduce(mine(), dst=size - 1)
    if rank == size - 1:
        same(reduced, total)
    same(ctx.broadcast(mine(), src=size - 1), of(size - 1, count, dtype))
    for r, part in enumerate(ctx.all_gather(mine())):
        same(part, of(r, count, dtype))
    for r, part in enumerate(ctx.gather(mine(), dst=0) or []):
        same(part, of(r, count, dtype))
    whole = torch.stack([of(r, size * count, dtype) for r in ranks]).sum(0).to(dtype)
    same(ctx.reduce_scatter(mine(size * count)), whole.view(size, count)[rank])
    exchanged = ctx.all_to_all([mine() for _ in ranks])
    for r, part in enumerate(exchanged):
        same(part, of(r, count, dtype))
    out = torch.empty(count, dtype=dtype, device=DEVICE)
    parts = [of(10 * r, count, dtype).to(DEVICE) for r in ranks] if rank == 0 else None
    ctx.scatter(out, parts, src=0)
    same(out, of(10 * rank, count, dtype))
    got = torch.empty(count, dtype=dtype, device=DEVICE)
    with ctx.coalesce():
        ctx.send_async(mine(), (rank + 1) % size)
        received = ctx.recv_async(got, (rank - 1) % size)
    received.wait()
    same(got, of((rank - 1) % size, count, dtype))


def main() -> None:
    backend = sys.argv[1]
    with CiuicContext(backend=backend, timeout_s=60) as ctx:
        assert ctx.backend == backend, ctx.describe()
        for dtype in DTYPES:
            for count in COUNTS if dtype == torch.float32 else COUNTS[:-1]:
                check(ctx, count, dtype)
        ctx.barrier()
    print("operations are good")


DEVICE = os.environ.get("DEVICE") or ciuic.local_device()
main()
