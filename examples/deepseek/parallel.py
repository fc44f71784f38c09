# SPDX-License-Identifier: Apache-2.0
"""Ways to share one model among the ranks, through torch.distributed (``--parallel``).

    fsdp      every weight is cut into a part for each rank and put together for the layer that
              computes; each rank trains on its share of the batch        (``fully_shard``)
    tensor    attention's heads, the dense and the shared experts' widths are shared; every rank
              sees the whole batch                                        (``parallelize_module``)
    pipeline  each rank has some of the layers; parts of the batch go from rank to rank, several
              under way at once                                           (``Schedule1F1B``)

``ddp`` is in gradients.py: every rank has the whole model, and gradients alone travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from deepseek.model import arithmetic
from deepseek.options import OptionError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def shard(model: Any) -> None:
    """Cut the weights of ``model``, in place: a layer's are together only while it computes."""
    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def split_tensors(model: Any) -> None:
    """Share the heads and widths of each layer of ``model`` among the ranks, in place.

    The routed experts, the latent projections and the embeddings stay whole on every rank, which
    computes the same with them as all others.

    Raises:
        OptionError: Heads that the ranks cannot share evenly.
    """
    size = dist.get_world_size()
    heads = model.config.num_attention_heads
    if heads % size:
        raise OptionError(f"--parallel tensor: {size} ranks cannot share {heads} heads evenly")
    mesh = init_device_mesh(model.device.type, (size,))
    for layer in model.model.layers:
        attention = {"q_b_proj": ColwiseParallel(), "kv_b_proj": ColwiseParallel()}
        parallelize_module(layer.self_attn, mesh, {**attention, "o_proj": RowwiseParallel()})
        rope = model.config.qk_rope_head_dim
        layer.self_attn.kv_a_proj_with_mqa.register_forward_hook(_shared_by_heads(rope))
        dense = getattr(layer.mlp, "shared_experts", layer.mlp)
        widths = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel()}
        parallelize_module(dense, mesh, {**widths, "down_proj": RowwiseParallel()})


def _shared_by_heads(rope: int) -> Any:
    """The last ``rope`` columns, the keys' rotary part, go to all heads, past the linear layers
    that sum their inputs' gradients over the ranks; so it is done here.
    """

    def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        latent, rotary = output.split([output.shape[-1] - rope, rope], dim=-1)
        return torch.cat([latent, _SumOfGradients.apply(rotary)], dim=-1)

    return hook


class _SumOfGradients(torch.autograd.Function):
    """The identity; its gradient is the sum over the ranks."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class Stage(torch.nn.Module):
    """The layers ``[first, last)`` of a model; the outer two also have its ends."""

    def __init__(self, model: Any, first: int, last: int, precision: str) -> None:
        super().__init__()
        decoder = model.model
        count = len(decoder.layers)
        self.embed_tokens = decoder.embed_tokens if first == 0 else None
        self.rotary_emb = decoder.rotary_emb
        self.layers = decoder.layers[first:last]
        self.norm = decoder.norm if last == count else None
        self.lm_head = model.lm_head if last == count else None
        self._precision = precision

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens ``[batch, length]``, or what the stage before gave ``[batch, length, width]``."""
        with arithmetic(self._precision, x.device):
            if self.embed_tokens is not None:
                x = self.embed_tokens(x)
            places = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
            angles = self.rotary_emb(x, places)
            for layer in self.layers:
                # No mask: attention is then causal by itself.
                x = layer(x, position_embeddings=angles, attention_mask=None, position_ids=places)
            if self.norm is not None and self.lm_head is not None:
                x = self.lm_head(self.norm(x))
        return x


class Pipeline:
    """This rank's stage of ``model``, and the schedule by which the stages work.

    Args:
        model: The whole one; what is not this stage's may go.
        precision: Of the arithmetic, as ``--precision`` says.
        batch: Sequences a step. They go through in parts, some two for each stage.
        loss: Of the last stage's output, and the targets: summed over a part's tokens.

    Raises:
        OptionError: More ranks than layers.
    """

    def __init__(self, model: Any, precision: str, batch: int, loss: Loss) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        layers = len(model.model.layers)
        if size > layers:
            raise OptionError(
                f"--parallel pipeline: {size} ranks, and the model has {layers} layers"
            )
        self.first_layer, last_layer = rank * layers // size, (rank + 1) * layers // size
        self.module = Stage(model, self.first_layer, last_layer, precision)
        self._is_first, self._is_last = rank == 0, rank == size - 1
        self._device = model.device
        self._parts = next(n for n in range(2 * size, 0, -1) if batch % n == 0)
        stage = pipelining.PipelineStage(self.module, rank, size, self._device)
        self._schedule = pipelining.Schedule1F1B(
            stage, self._parts, loss_fn=loss, scale_grads=False
        )

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward of all parts; the sum of their losses on the last rank, else 0."""
        return self._run(self._schedule.step, inputs, targets)

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward alone; returns as :meth:`step`."""
        return self._run(self._schedule.eval, inputs, targets)

    def _run(self, run: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        given = (inputs,) if self._is_first else ()
        losses: list[torch.Tensor] = []
        if self._is_last:
            run(*given, target=targets, losses=losses)
        else:
            run(*given)
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack([loss.detach() for loss in losses]).sum()
