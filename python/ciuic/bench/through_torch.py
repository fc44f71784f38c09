# SPDX-License-Identifier: Apache-2.0
"""An implementation as torch.distributed calls it, by the name of its backend. Imported in the
workers alone.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from ciuic.bench.implementations import gloos_refusals, timed

WIDTH = 320
LENGTH = 32
BATCH = 4
LAYER_PARAMETERS = 12 * WIDTH * WIDTH + 13 * WIDTH  # of torch.nn.TransformerEncoderLayer


class ThroughTorch:
    """The default group of torch.distributed in one process, and what is timed on it."""

    def __init__(self, backend: str, rank: int, ranks: int, settings: dict[str, Any]) -> None:
        self._backend = backend
        self._dtype = getattr(torch, settings["dtype"])
        self._op = getattr(distributed.ReduceOp, settings["op"].upper())
        self._tensor = torch.zeros(0)
        self._steps: dict[int, _Steps] = {}
        torch.set_num_threads(1)
        if settings["operation"] != "ddp":
            self._tensor = torch.zeros(max(settings["counts"]), dtype=self._dtype)
        store: Any
        if backend == "fake":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            store = FakeStore()
        else:
            store = distributed.FileStore(f"{settings['folder']}/torch-{backend}", ranks)
        distributed.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=settings["timeout_s"]),
        )

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        if through == "step":
            return timed(self._steps_of(count).step, warm_up, iterations)
        if through == "buckets":
            return timed(self._steps_of(count).reduce_buckets, warm_up, iterations)
        tensor, op = self._tensor[:count], self._op
        all_reduce = distributed.all_reduce
        with gloos_refusals() if self._backend == "gloo" else contextlib.nullcontext():
            if through == "torch":
                return timed(lambda: all_reduce(tensor, op), warm_up, iterations)
            return timed(lambda: all_reduce(tensor, op, async_op=True).wait(), warm_up, iterations)

    def address(self) -> int:
        return int(self._tensor.data_ptr())

    def check(self, count: int) -> int:
        """The first gradient of a step that is not the mean of the ranks'; -1: all are."""
        return -1 if self._backend == "fake" else self._steps_of(count).check()

    def close(self) -> None:
        self._steps.clear()
        distributed.destroy_process_group()

    def _steps_of(self, count: int) -> _Steps:
        if count not in self._steps:
            self._steps[count] = _Steps(count)
        return self._steps[count]


class _Steps:
    """Training steps of a transformer of about ``count`` parameters, on this rank's own input."""

    def __init__(self, count: int) -> None:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, 0.0, batch_first=True)
        layers = max(1, round(count / LAYER_PARAMETERS))
        self._model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self._ddp = torch.nn.parallel.DistributedDataParallel(self._model)
        self._buckets: list[torch.Tensor] = []
        self._ddp.register_comm_hook(None, self._note_buckets)
        draw = torch.Generator().manual_seed(distributed.get_rank())
        self._input = torch.randn(BATCH, LENGTH, WIDTH, generator=draw)
        for _ in range(2):  # DDP settles its buckets in the first
            self._buckets.clear()
            self.step()
        self._ddp = torch.nn.parallel.DistributedDataParallel(self._model)
        if distributed.get_backend() == "fake":  # its futures hold nothing, which DDP does not take
            self._ddp.register_comm_hook(None, _reduce_at_once)
        for _ in range(2):
            self.step()

    def _note_buckets(self, _, bucket):  # type: ignore[no-untyped-def]
        self._buckets.append(torch.zeros_like(bucket.buffer()))
        return _reduce_at_once(_, bucket)  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Forward and backward; there is no optimizer, whose time is nobody's here."""
        self._model.zero_grad(set_to_none=True)
        self._ddp(self._input).square().mean().backward()

    def reduce_buckets(self) -> None:
        """What a step sends, and nothing else."""
        works = [distributed.all_reduce(bucket, async_op=True) for bucket in self._buckets]
        for work in works:
            work.wait()

    def check(self) -> int:
        self.step()
        found = torch.cat([value.grad.flatten() for value in self._model.parameters()])
        self._model.zero_grad(set_to_none=True)
        self._model(self._input).square().mean().backward()
        mean = torch.cat([value.grad.flatten() for value in self._model.parameters()])
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
        wrong = ~torch.isclose(found, mean, rtol=1e-3, atol=1e-7)
        return int(wrong.nonzero()[0]) if bool(wrong.any()) else -1


# DDP compares annotations, as objects, with those that it wants.
def _reduce_at_once(_, bucket):  # type: ignore[no-untyped-def]
    distributed.all_reduce(bucket.buffer())
    reduced: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    reduced.set_result(bucket.buffer())
    return reduced
