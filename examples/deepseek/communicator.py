# SPDX-License-Identifier: Apache-2.0
"""What the training asks of a communication library: of Ciuic itself, or of torch.distributed.

With ``--parallel ddp`` only these few calls differ between ``--comm ciuic`` and ``--comm gloo``;
DDP, which ``--comm gloo`` takes for the gradients, is in gradients.py. The other ways to share the
work are torch's, and take Ciuic as torch's backend.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from deepseek.options import OptionError

# Above any pause of a healthy rank: validation, a checkpoint, a machine that swaps.
TIMEOUT_S = 300.0


class Pending(Protocol):
    """An operation under way; its tensor is neither read nor written until ``wait`` returns."""

    def wait(self) -> Any: ...


class Communicator(Protocol):
    """A group of ranks. All of them make the same calls in the same order."""

    name: str
    rank: int
    size: int

    def all_reduce_async(self, tensor: torch.Tensor, op: str) -> Pending:
        """Start to set ``tensor`` to its "sum", "average", "min" or "max" over all ranks."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Set ``tensor`` to rank 0's."""

    def describe(self) -> str:
        """Say in a line what carries the data."""

    def close(self) -> None:
        """Leave the group."""


def all_reduce(communicator: Communicator, tensor: torch.Tensor, op: str) -> torch.Tensor:
    """Return ``tensor``, reduced in place."""
    communicator.all_reduce_async(tensor, op).wait()
    return tensor


def device_of(num_gpus: int) -> torch.device:
    """Return this rank's device, which is the current one from now on: call it before ``join``."""
    if num_gpus == 0:
        return torch.device("cpu")
    import ciuic

    device = torch.device(ciuic.local_device())
    torch.cuda.set_device(device)
    return device


def join(name: str, parallel: str = "ddp") -> Communicator:
    """Join the group that the launcher's environment describes."""
    if name == "ciuic" and parallel == "ddp":
        return CiuicCommunicator()
    return TorchCommunicator(name)


class CiuicCommunicator:
    """The group over Ciuic."""

    name = "ciuic"

    def __init__(self) -> None:
        import ciuic

        context = ciuic.CiuicContext(timeout_s=TIMEOUT_S)
        self._ciuic = ciuic
        self._context = context
        self._ops = {"sum": context.SUM, "average": context.AVG}
        self._ops |= {"min": context.MIN, "max": context.MAX}
        self.rank = context.rank
        self.size = context.world_size

    def all_reduce_async(self, tensor: torch.Tensor, op: str) -> Pending:
        handle: Pending = self._ciuic.all_reduce_async(
            tensor, op=self._ops[op], context=self._context
        )
        return handle

    def broadcast(self, tensor: torch.Tensor) -> None:
        self._context.broadcast(tensor, src=0)

    def describe(self) -> str:
        return f"ciuic: {self.size} ranks, backend {self._context.backend}, our own buckets"

    def close(self) -> None:
        self._context.barrier()  # closing does not wait for ranks that still need this one
        self._context.close()


class TorchCommunicator:
    """The default group of torch.distributed, joined through torchrun's variables."""

    def __init__(self, backend: str) -> None:
        self.name = backend
        if not dist.is_initialized():
            if "MASTER_ADDR" not in os.environ:
                raise OptionError(
                    f"{backend} joins through torchrun's variables, and MASTER_ADDR is not set: "
                    "start the ranks with torchrun, or let this program do it (--nproc N)"
                )
            dist.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT_S))
        self._ops = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def all_reduce_async(self, tensor: torch.Tensor, op: str) -> Pending:
        if op == "average":  # gloo has none; a sum of shares is the same within rounding
            tensor.div_(self.size)
            op = "sum"
        work: Pending = dist.all_reduce(tensor, op=self._ops[op], async_op=True)
        return work

    def broadcast(self, tensor: torch.Tensor) -> None:
        dist.broadcast(tensor, src=0)

    def describe(self) -> str:
        return f"{self.name}: {self.size} ranks, PyTorch {torch.__version__}"

    def close(self) -> None:
        dist.destroy_process_group()
