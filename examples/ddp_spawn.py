#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over Ciuic, its ranks started by one function call.

    python ddp_spawn.py
    python ddp_spawn.py --nproc 4 --backend gloo

``ciuic.spawn`` gives the ranks what ``torch.multiprocessing.spawn`` leaves to the program: an
address to meet at. A DistributedSampler gives each rank its own share of the data.
"""

from __future__ import annotations

import argparse

import ciuic
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 5
SAMPLES = 1024


def dataset() -> TensorDataset:
    """Return points of a plane, and whether each lies in the ring around its middle."""
    points = torch.rand(SAMPLES, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    radius = points.norm(dim=1)
    return TensorDataset(points, ((radius > 0.4) & (radius < 0.8)).float())


def train(rank: int, backend: str) -> list[float]:
    """Be one rank; return the mean loss of each epoch, over the samples of all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    torch.manual_seed(rank)  # DDP gives all ranks the weights of rank 0
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    data = dataset()
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=64 // dist.get_world_size(), sampler=sampler)

    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # another order in each epoch, and no sample on two ranks
        total = torch.zeros(2)
        for points, inside in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(points).squeeze(1), inside)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(inside), float(len(inside))])
        dist.all_reduce(total)
        losses.append(float(total[0] / total[1]))
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.4f} over {int(total[1])} samples")

    check_alike(model)
    del model  # it holds the group, which is to end before Python does
    dist.destroy_process_group()
    return losses


def check_alike(model: nn.Module) -> None:
    """End in an error where the ranks' weights differ in a single bit."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    of_rank_0 = weights.clone()
    dist.broadcast(of_rank_0, src=0)
    if not torch.equal(weights, of_rank_0):
        raise RuntimeError(f"rank {dist.get_rank()} ended with other weights than rank 0")


def main() -> None:
    """Start the ranks and print how the loss fell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nproc", type=int, default=2, help="ranks; they must share 64 evenly")
    parser.add_argument("--backend", default="ciuic", help="of torch.distributed")
    options = parser.parse_args()
    losses = ciuic.spawn(train, (options.backend,), options.nproc)
    print(
        f"{options.backend}, {options.nproc} ranks: loss {losses[0][0]:.4f} -> {losses[0][-1]:.4f}"
    )


if __name__ == "__main__":
    main()
