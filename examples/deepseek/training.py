# SPDX-License-Identifier: Apache-2.0
"""The training itself: what a step is, what validation is, and what a checkpoint must hold.

A step, on every rank, with the operations that cross the ranks numbered in their order:

    forward    this rank's share of the global batch
    1          loss, tokens per expert, "time is up": summed in the background during backward
    backward   gradients
    2 .. n     the buckets of gradients (gradients.py), overlapped with backward
    update     optimizer, then the routers' biases: the same arithmetic on the same numbers
               everywhere, so the ranks stay equal without ever sending a weight
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from deepseek import data
from deepseek.balance import ExpertBalance
from deepseek.communicator import Communicator, all_reduce
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
        self, options: argparse.Namespace, communicator: Communicator, corpus: data.Corpus
    ) -> None:
        self.step_count = 0
        self._options = options
        self._communicator = communicator
        self._corpus = corpus
        data.check_length(corpus, options.sequence)
        self.model = build(options.sequence, options.seed, options.precision)
        self._balance = ExpertBalance(self.model)
        self._optimizer = _optimizer(self.model, options)
        self._gradients = gradients_over(communicator, self.model, options.bucket_kib * 1024)
        each = options.batch // communicator.size
        self._share = slice(communicator.rank * each, (communicator.rank + 1) * each)

    def check_alike(self) -> None:
        """Raise OptionError on all ranks where they differ in options, text or weights."""
        weights = hashlib.sha256()
        for value in self.model.state_dict().values():
            weights.update(value.numpy())
        facts = {
            "the options": repr(sorted(self._alike_options().items())).encode(),
            "the text (another Python?)": self._corpus.digest,
            "the weights (another PyTorch?)": weights.digest(),
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
        options, size = self._options, self._communicator.size
        # Whatever is random within a step depends on seed, step and rank alone, so a resumed run
        # needs no generator's state.
        torch.manual_seed((options.seed * 1_000_003 + self.step_count) * 1_009 + self._rank)
        inputs, targets = data.batch_of(
            self._corpus,
            self.step_count,
            options.seed,
            options.batch,
            options.sequence,
            self._share,
        )
        self.model.train()
        # The sum over this rank's tokens by the mean number of tokens a rank: averaged over the
        # ranks, it is the mean over all tokens of the global batch.
        total = self._loss(self._gradients.model, inputs, targets)
        loss = total / (options.batch * options.sequence / size)

        load = self._balance.take_load()
        summary = torch.cat(
            [
                torch.stack([loss.detach() / size, torch.tensor(float(time_is_up))]).double(),
                load.flatten().double(),
            ]
        )
        if self._rank != 0:
            summary[1] = 0.0
        summarized = self._communicator.all_reduce_async(summary, "sum")
        waited_s = self._gradients.backward(loss)
        wait_from_s = time.perf_counter()
        summarized.wait()
        waited_s += time.perf_counter() - wait_from_s

        for group in self._optimizer.param_groups:
            group["lr"] = options.lr * min(1.0, (self.step_count + 1) / WARM_UP_STEPS)
        self._optimizer.step()
        self._balance.move(summary[2:].view_as(load))
        self.step_count += 1
        seconds = time.perf_counter() - started_s
        return Step(summary[0].item(), seconds, waited_s, summary[1].item() > 0)

    @torch.no_grad()
    def validate(self) -> float:
        """Return the mean loss over held-out text, alike on all ranks."""
        self.model.eval()
        share = slice(self._rank, None, self._communicator.size)
        options = self._options
        inputs, targets = data.held_out_of(
            self._corpus, options.sequence, HELD_OUT_SEQUENCES, share
        )
        summary = torch.zeros(2, dtype=torch.float64)
        for some_inputs, some_targets in zip(inputs.split(8), targets.split(8), strict=True):
            summary[0] += self._loss(self.model, some_inputs, some_targets)
            summary[1] += some_targets.numel()
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
        with arithmetic(self._options.precision):
            logits = model(input_ids=inputs).logits
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        return functional.cross_entropy(
            logits.view(-1, VOCABULARY), targets.view(-1), reduction="sum"
        )


def _optimizer(model: torch.nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    if options.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=options.lr)
    # The technical report's betas and weight decay.
    return torch.optim.AdamW(
        model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
