#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model in two processes, driven by a third, over torch.distributed.rpc.

    python rpc_model_parallel.py

Worker 1 owns the Embedding, worker 2 the Transformer, and worker 0 drives: it holds references to
both (RRefs), runs the forward pass through them, and has distributed autograd and a
DistributedOptimizer bring gradients and steps to where the weights are. The three are a group of
Ciuic, too: at the end they compare notes through it.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import ciuic
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

VOCABULARY = 32
WIDTH = 32
LENGTH = 16
BATCH = 32


class Embedding(nn.Module):
    """Tokens of shape [batch, length] become vectors, with their place added."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return vectors


class Transformer(nn.Module):
    """Vectors become a score for each token of the vocabulary, at each place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.scores = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(self.layers(vectors))
        return scores


def forward(module: rpc.RRef[Any], x: torch.Tensor) -> torch.Tensor:
    """Run ``module`` on ``x``; called on the worker that owns it."""
    y: torch.Tensor = module.local_value()(x)
    return y


def parameters(module: rpc.RRef[Any]) -> list[rpc.RRef[Any]]:
    """Return a reference to each parameter; called on the worker that owns them."""
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]


class SplitModel:
    """Both halves, wherever they are."""

    def __init__(self) -> None:
        self.halves = [rpc.remote("worker1", Embedding), rpc.remote("worker2", Transformer)]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        x = tokens
        for half in self.halves:
            x = rpc.rpc_sync(half.owner(), forward, (half, x))
        return x

    def parameters(self) -> list[rpc.RRef[Any]]:
        found = [rpc.rpc_sync(half.owner(), parameters, (half,)) for half in self.halves]
        return [parameter for of_half in found for parameter in of_half]


def drive(steps: int) -> list[float]:
    """Train the model to read a sequence backwards; return the loss of each step."""
    model = SplitModel()
    optimizer = DistributedOptimizer(torch.optim.Adam, model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)
    losses = []
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=draw)
        with autograd.context() as context:
            scores = model(tokens)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flip(1).flatten())
            autograd.backward(context, [loss])
            optimizer.step(context)
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step + 1}: loss {losses[-1]:.4f}")
    return losses


def run(rank: int, steps: int, backend: str) -> list[float]:
    """Be one of the three."""
    warnings.filterwarnings("ignore", message="You are using a Backend")  # torch's RPC does
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3)
    ends = torch.zeros(2)
    if rank == 0:
        losses = drive(steps)
        ends = torch.tensor([losses[0], losses[-1]])
    rpc.shutdown()  # waits until nobody needs this worker's half any more
    dist.broadcast(ends, src=0)
    dist.destroy_process_group()
    return [float(end) for end in ends]


def main() -> None:
    """Start the three workers and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--backend", default="ciuic", help="of torch.distributed")
    options = parser.parse_args()
    first, last = ciuic.spawn(run, (options.steps, options.backend), nprocs=3)[0]
    print(f"{options.backend}: loss {first:.4f} -> {last:.4f} in {options.steps} steps, 3 workers")


if __name__ == "__main__":
    main()
