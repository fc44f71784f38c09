# SPDX-License-Identifier: Apache-2.0
"""Average the gradients over all ranks while the backward pass still computes others.

``BucketedGradients`` does it over a Communicator:

1. The parameters are dealt to buckets once, last parameter first, since backward reaches them in
   about that order. A bucket is one flat tensor; each of its parameters owns a place in it.
2. When backward has finished a parameter's gradient, a hook copies it to its place. A bucket
   whose gradients have all come is all-reduced in the background, but never before the bucket in
   front of it: so every rank issues the same operations in the same order, whatever its own
   backward pass did.
3. A gradient that never comes (no token of this rank reached the parameter) can only be known at
   the end of backward. Its place is zeroed then, and the buckets held up by it are issued. One
   last all-reduce (MAX over a byte a parameter) tells which gradients exist on any rank at all.
4. A parameter with a gradient on any rank ends with the average over all, missing ones counted
   as zeros. One without on every rank keeps ``grad`` None, so that the optimizer leaves its
   weight and its momentum alone.

``DdpGradients`` leaves the same to PyTorch's DistributedDataParallel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from deepseek.communicator import Communicator, Pending


class Gradients(Protocol):
    """Runs the backward pass and averages what it leaves in ``parameter.grad``."""

    model: Any  # call this one for a forward pass in training

    def backward(self, loss: torch.Tensor) -> float:
        """Leave the average gradients in place; return the seconds waited after the last one."""


def gradients_over(
    communicator: Communicator, model: torch.nn.Module, bucket_bytes: int, parallel: str = "ddp"
) -> Gradients:
    """Return what averages the gradients of ``model``: DDP for gloo, our buckets otherwise.

    Where ``parallel`` is no "ddp", what shares the model does that by itself.
    """
    if parallel != "ddp":
        return GradientsOfModel(model)
    if communicator.name == "gloo":
        return DdpGradients(model, bucket_bytes)
    return BucketedGradients(communicator, model, bucket_bytes)


class _Bucket:
    """Gradients that travel together: ``flat`` and each parameter's place in it."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        count = sum(parameter.numel() for parameter in parameters)
        self.flat = torch.zeros(count, dtype=parameters[0].dtype, device=parameters[0].device)
        self.parameters = parameters
        pieces = self.flat.split([parameter.numel() for parameter in parameters])
        self.places = [
            piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=True)
        ]
        self.missing = len(parameters)  # gradients that have not come yet in this step


def _deal(parameters: list[torch.nn.Parameter], bucket_bytes: int) -> Iterator[_Bucket]:
    """Yield the buckets: of one dtype each, and of ``bucket_bytes`` unless one gradient is more."""
    held: list[torch.nn.Parameter] = []
    held_bytes = 0
    for parameter in reversed(parameters):
        fits = held_bytes + parameter.nbytes <= bucket_bytes
        if held and not (fits and parameter.dtype == held[0].dtype):
            yield _Bucket(held)
            held, held_bytes = [], 0
        held.append(parameter)
        held_bytes += parameter.nbytes
    if held:
        yield _Bucket(held)


class BucketedGradients:
    """The gradients of ``model``, averaged over ``communicator`` in buckets.

    Each backward pass makes the gradients anew: there is no accumulation over several. The
    gradients it leaves are views of the buckets, valid until the next backward pass.
    """

    def __init__(
        self, communicator: Communicator, model: torch.nn.Module, bucket_bytes: int
    ) -> None:
        self.model = model
        self._communicator = communicator
        parameters = [each for each in model.parameters() if each.requires_grad]
        self._buckets = list(_deal(parameters, bucket_bytes))
        self._arrived = [False] * len(parameters)  # in the order of the buckets
        self._pending: list[Pending] = []  # one a bucket issued, in order
        self._last_gradient_s = 0.0
        index = 0
        for bucket in self._buckets:
            for parameter, place in zip(bucket.parameters, bucket.places, strict=True):
                hook = self._arrival(bucket, place, index)
                parameter.register_post_accumulate_grad_hook(hook)
                index += 1

    def backward(self, loss: torch.Tensor) -> float:
        """Leave the average gradients in place; return the seconds waited after the last one."""
        self._start()
        loss.backward()
        started_s = self._last_gradient_s or time.perf_counter()
        self._zero_missing()
        self._issue_complete()
        present = torch.tensor(self._arrived, dtype=torch.uint8)
        self._pending.append(self._communicator.all_reduce_async(present, "max"))
        for pending in self._pending:
            pending.wait()
        waited_s = time.perf_counter() - started_s
        self._hand_out(present)
        return waited_s

    def _start(self) -> None:
        self._pending.clear()
        self._arrived = [False] * len(self._arrived)
        self._last_gradient_s = 0.0
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)
            for parameter in bucket.parameters:
                parameter.grad = None

    def _arrival(self, bucket: _Bucket, place: torch.Tensor, index: int) -> Any:
        def arrived(parameter: torch.nn.Parameter) -> None:
            place.copy_(parameter.grad)
            parameter.grad = None  # its memory is free for the rest of backward
            self._arrived[index] = True
            bucket.missing -= 1
            self._last_gradient_s = time.perf_counter()
            self._issue_complete()

        return arrived

    def _issue_complete(self) -> None:
        """Issue the buckets that are complete, up to the first that is not."""
        for bucket in self._buckets[len(self._pending) :]:
            if bucket.missing:
                return
            self._pending.append(self._communicator.all_reduce_async(bucket.flat, "average"))

    def _zero_missing(self) -> None:
        arrived = iter(self._arrived)
        for bucket in self._buckets:
            for place in bucket.places:
                if not next(arrived):
                    place.zero_()
            bucket.missing = 0

    def _hand_out(self, present: torch.Tensor) -> None:
        exists = iter(present.tolist())
        for bucket in self._buckets:
            for parameter, place in zip(bucket.parameters, bucket.places, strict=True):
                parameter.grad = place if next(exists) else None


class GradientsOfModel:
    """Those of a model that is shared among the ranks, and whose own hooks reduce them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def backward(self, loss: torch.Tensor) -> float:
        """Leave the gradients in place; return 0, since what it waits for comes in between."""
        loss.backward()
        return 0.0


class DdpGradients:
    """The gradients of ``model``, averaged by DistributedDataParallel over its default group."""

    def __init__(self, model: torch.nn.Module, bucket_bytes: int) -> None:
        self.model = DistributedDataParallel(
            model,
            forward_sync_buffers=False,  # the routers' biases are computed alike on all ranks
            bucket_cap_mb=bucket_bytes / 2**20,
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
        )
        self._last_gradient = _LastGradient()
        for parameter in model.parameters():
            if parameter.requires_grad:
                # Called before DDP's own hook on the same gradient, which issues its bucket.
                parameter.register_post_accumulate_grad_hook(self._last_gradient)

    def backward(self, loss: torch.Tensor) -> float:
        """Leave the average gradients in place; return the seconds waited after the last one."""
        self.model.zero_grad(set_to_none=True)
        loss.backward()  # DDP waits for its buckets before it returns
        return time.perf_counter() - self._last_gradient.seconds


class _LastGradient:
    """When the last gradient arrived. Hooks hold this alone, so that DDP and its group can go."""

    seconds = 0.0

    def __call__(self, _parameter: torch.nn.Parameter) -> None:
        self.seconds = time.perf_counter()
