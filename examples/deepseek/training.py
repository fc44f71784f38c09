# SPDX-License-Identifier: Apache-2.0
"""The training itself: what a step is, what validation is, and what a checkpoint must hold.

A step, on every rank, with the operations that cross the ranks numbered in their order:

    forward    this rank's share of the global batch
    1          loss, tokens per expert, "time is up": summed in the background during backward
    backward   gradients
    2 .. n     the buckets of gradients (gradients.py), overlapped with backward
    update     optimizer, then the routers' biases: the same arithmetic on the same numbers
               everywhere, so the ranks stay equal without ever sending a weight

``--parallel`` names other ways to share the work (parallel.py); what crosses the ranks within
forward and backward is then theirs, and the summary of the step comes after it.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch.distributed.tensor import DTensor

from deepseek import data
from deepseek.balance import ExpertBalance
from deepseek.communicator import Communicator, Pending, all_reduce
from deepseek.gradients import gradients_over
from deepseek.model import VOCABULARY, arithmetic, build
from deepseek.options import OptionError

WARM_UP_STEPS = 20
HELD_OUT_SEQUENCES = 64


@dataclass(frozen=True)
class Step:
    """What a step came to. ``loss`` is the mean over the global batch, alike on all ranks."""

    loss: float
    seconds: float
    waited_s: float  # of seconds, those in which this rank did nothing but wait for others
    time_is_up: bool


class Trainer:
    """Model, optimizer and data of one rank; all ranks step together."""

    def __init__(
        self,
        options: argparse.Namespace,
        communicator: Communicator,
        corpus: data.Corpus,
        device: torch.device,
    ) -> None:
        self.step_count = 0
        self._device = device
        self._options = options
        self._communicator = communicator
        self._corpus = corpus
        data.check_length(corpus, options.sequence)
        self.model: torch.nn.Module = build(
            options.sequence, options.seed, options.precision, device
        )
        self._balance = ExpertBalance(self.model)
        # Ranks that have a share of the batch each, or of the model and then all of the batch.
        by_batch = options.parallel in ("ddp", "fsdp")
        self._replicas = communicator.size if by_batch else 1
        replica = communicator.rank if by_batch else 0
        each = options.batch // self._replicas
        self._share = slice(replica * each, (replica + 1) * each)
        self._share_model()
        self._optimizer = _optimizer(self.model, options)
        self._gradients = gradients_over(
            communicator, self.model, options.bucket_kib * 1024, options.parallel
        )

    def _share_model(self) -> None:
        options = self._options
        self._pipeline: Any = None
        self._weights = b""
        if options.parallel == "ddp":
            return
        self._weights = _digest(self.model)  # while it is whole
        from deepseek import parallel

        if options.parallel == "fsdp":
            parallel.shard(self.model)
        elif options.parallel == "tensor":
            parallel.split_tensors(self.model)
        else:
            self._pipeline = parallel.Pipeline(
                self.model, options.precision, options.batch, self._loss_of_part
            )
            self.model = self._pipeline.module
            # In its first step a pipeline tries its shapes out, which must not count.
            shape = (options.batch, options.sequence)
            nothing = torch.zeros(shape, dtype=torch.int64, device=self._device)
            self._pipeline.step(nothing, nothing)
            self._balance.take_load()

    def check_alike(self) -> None:
        """Raise OptionError on all ranks where they differ in options, text or weights."""
        facts = {
            "the options": repr(sorted(self._alike_options().items())).encode(),
            "the text (another Python?)": self._corpus.digest,
            "the weights (another PyTorch?)": self._weights or _digest(self.model),
        }
        digests = [hashlib.sha256(fact).digest()[:7] for fact in facts.values()]
        least = torch.tensor([int.from_bytes(digest, "little") for digest in digests])
        most = all_reduce(self._communicator, least.clone(), "max")
        least = all_reduce(self._communicator, least, "min")
        for fact, alike in zip(facts, (least == most).tolist(), strict=True):
            if not alike:
                raise OptionError(f"the ranks do not agree on {fact}")

    def step(self, time_is_up: bool = False) -> Step:
        """Train on the next global batch; ``time_is_up`` on rank 0 comes out on all ranks."""
        started_s = time.perf_counter()
        options = self._options
        # Whatever is random within a step depends on seed, step and rank alone, so a resumed run
        # needs no generator's state.
        torch.manual_seed((options.seed * 1_000_003 + self.step_count) * 1_009 + self._rank)
        batch = data.batch_of(
            self._corpus,
            self.step_count,
            options.seed,
            options.batch,
            options.sequence,
            self._share,
        )
        inputs, targets = (tokens.to(self._device) for tokens in batch)
        self.model.train()
        if options.parallel != "ddp":  # before forward: what it puts together has gradients too
            self._optimizer.zero_grad(set_to_none=True)
        if self._pipeline is None:
            summary, load, waited_s = self._forward_backward(inputs, targets, time_is_up)
        else:
            total = self._pipeline.step(inputs, targets)
            summary, load = self._summary(total, time_is_up)
            waited_s = self._wait(self._communicator.all_reduce_async(summary, "sum"))

        for group in self._optimizer.param_groups:
            group["lr"] = options.lr * min(1.0, (self.step_count + 1) / WARM_UP_STEPS)
        self._optimizer.step()
        self._balance.move(summary[2:].view_as(load))
        self.step_count += 1
        seconds = time.perf_counter() - started_s
        return Step(summary[0].item(), seconds, waited_s, summary[1].item() > 0)

    def _forward_backward(
        self, inputs: torch.Tensor, targets: torch.Tensor, time_is_up: bool
    ) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Leave the gradients in place; return the step's summary, the load, the seconds waited."""
        options = self._options
        # The sum over this rank's tokens by the mean number of tokens a share: averaged over the
        # shares, it is the mean over all tokens of the global batch.
        total = self._loss(self._gradients.model, inputs, targets)
        loss = total / (options.batch * options.sequence / self._replicas)
        summary, load = self._summary(loss.detach() / self._communicator.size, time_is_up)
        if options.parallel == "ddp":
            summarized = self._communicator.all_reduce_async(summary, "sum")
            waited_s = self._gradients.backward(loss)
        else:  # layers that compute together wait for each other: nothing else comes between
            waited_s = self._gradients.backward(loss)
            summarized = self._communicator.all_reduce_async(summary, "sum")
        return summary, load, waited_s + self._wait(summarized)

    def _summary(
        self, share_of_loss: torch.Tensor, time_is_up: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is summed over the ranks: the loss, "time is up", the load; and the load."""
        load = self._balance.take_load()
        of_rank_0 = float(time_is_up and self._rank == 0)
        of_all = torch.tensor(of_rank_0, dtype=torch.float64, device=self._device)
        parts = [torch.stack([share_of_loss.double(), of_all]), load.flatten().double()]
        return torch.cat(parts), load

    @staticmethod
    def _wait(pending: Pending) -> float:
        """Return the seconds that it took."""
        from_s = time.perf_counter()
        pending.wait()
        return time.perf_counter() - from_s

    @torch.no_grad()
    def validate(self) -> float:
        """Return the mean loss over held-out text, alike on all ranks."""
        self.model.eval()
        options = self._options
        alone = options.parallel == "ddp"  # else the ranks compute together, all on everything
        share = slice(self._rank, None, self._communicator.size) if alone else slice(None)
        together = 8 if self._pipeline is None else options.batch  # a pipeline takes no other
        sequences = max(HELD_OUT_SEQUENCES // together, 1) * together
        held_out = data.held_out_of(self._corpus, options.sequence, sequences, share)
        inputs, targets = (tokens.to(self._device) for tokens in held_out)
        summary = torch.zeros(2, dtype=torch.float64, device=self._device)
        for some_inputs, some_targets in zip(
            inputs.split(together), targets.split(together), strict=True
        ):
            if self._pipeline is None:
                summary[0] += self._loss(self.model, some_inputs, some_targets)
                summary[1] += some_targets.numel()
            else:  # the last rank alone has losses, which are of the mean already
                summary[0] += self._pipeline.evaluate(some_inputs, some_targets)
                summary[1] += 1 / self._communicator.size
        all_reduce(self._communicator, summary, "sum")
        return float(summary[0] / summary[1])

    def settings(self) -> dict[str, Any]:
        """Return what a resumed run must share with the one that it goes on from."""
        names = ("model", "precision", "batch", "sequence", "optimizer", "seed")
        settings = {name: getattr(self._options, name) for name in names}
        return settings | {"text": self._corpus.digest.hex()}

    def state(self) -> dict[str, Any]:
        """Return all that a run needs to go on bit for bit: weights, biases, optimizer, step."""
        return {
            "settings": self.settings(),
            "step": self.step_count,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``. The data's place and the random numbers follow from the step."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step_count = state["step"]

    @property
    def _rank(self) -> int:
        return self._communicator.rank

    def _alike_options(self) -> dict[str, Any]:
        return self.settings() | {"lr": self._options.lr, "bucket_kib": self._options.bucket_kib}

    def _loss(self, model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss summed over the tokens; float64 if the model is, float32 otherwise."""
        with arithmetic(self._options.precision, self._device):
            logits = model(input_ids=inputs).logits
        return _cross_entropy(logits, targets)

    def _loss_of_part(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return what a part of the batch adds to the mean over all of it."""
        tokens = self._options.batch * self._options.sequence
        return _cross_entropy(logits, targets) / tokens


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), reduction="sum")


def _digest(model: torch.nn.Module) -> bytes:
    weights = hashlib.sha256()
    for value in model.state_dict().values():
        weights.update(value.cpu().numpy())
    return weights.digest()


def _optimizer(model: torch.nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    if options.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=options.lr)
    # A kernel takes weights that are cut, or weights that are whole.
    cut = [value for value in model.parameters() if isinstance(value, DTensor)]
    whole = [value for value in model.parameters() if not isinstance(value, DTensor)]
    # The technical report's betas and weight decay.
    return torch.optim.AdamW(
        [{"params": values} for values in (cut, whole) if values],
        lr=options.lr,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )
