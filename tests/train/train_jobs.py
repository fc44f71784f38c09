# SPDX-License-Identifier: Apache-2.0
"""What the ranks of these tests do; train_ranks.py starts them and returns the results."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepseek import checkpoint, data
from deepseek.communicator import Communicator
from deepseek.gradients import BucketedGradients, Gradients, gradients_over
from deepseek.options import OptionError
from deepseek.training import Trainer
from train_ranks import options

Arrays = dict[str, np.ndarray]


def corpus() -> data.Corpus:
    """Return a text that is quick to read and not quick to learn: some of the library's folders."""
    import email

    return data.read_corpus(Path(email.__file__).parent)


def gradients_of_steps(communicator: Communicator, line: str, steps: int) -> list[Arrays]:
    """Return every gradient of every one of ``steps`` steps."""
    trainer = Trainer(options(line), communicator, corpus(), torch.device("cpu"))
    trainer.check_alike()
    found = []
    for _ in range(steps):
        trainer.step()
        found.append(
            {name: value.grad.numpy().copy() for name, value in trainer.model.named_parameters()}
        )
    return found


def losses(communicator: Communicator, line: str, steps: int) -> tuple[list[float], float]:
    """Return the losses of ``steps`` steps, and that of the held-out text after them."""
    trainer = Trainer(options(line), communicator, corpus(), torch.device("cpu"))
    trainer.check_alike()
    return [trainer.step().loss for _ in range(steps)], trainer.validate()


def starved_expert(communicator: Communicator, line: str, everywhere: bool) -> dict[str, Any]:
    """Train a step in which an expert of the first router gets no token.

    Where ``everywhere`` is false, that holds for all ranks but the last.
    """
    trainer = Trainer(options(line), communicator, corpus(), torch.device("cpu"))
    experts = trainer.model.model.layers[1].mlp
    chosen: list[torch.Tensor] = []
    experts.gate.register_forward_hook(lambda _m, _i, out: chosen.append(out[2].clone()))
    starve = everywhere or communicator.rank != communicator.size - 1
    before = experts.experts.down_proj[0].detach().clone()
    with torch.no_grad():
        # For the choice only: what the update does to the bias is seen in the difference.
        start = experts.gate.e_score_correction_bias.clone()
        start[0] = -10.0 if starve else 10.0
        experts.gate.e_score_correction_bias.copy_(start)
    trainer.step()
    counts = torch.bincount(chosen[0].flatten(), minlength=8)
    return {
        "tokens": counts.tolist(),
        "gradient": experts.experts.down_proj.grad[0].numpy().copy(),
        "moved": (experts.experts.down_proj[0] - before).abs().max().item(),
        "bias_moved": (experts.gate.e_score_correction_bias - start).tolist(),
    }


class Branches(torch.nn.Module):
    """Three weights, of which a forward pass takes those that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.full((count,), float(count)) for count in (3, 1, 1000)]
        )

    def forward(self, taken: list[int]) -> torch.Tensor:
        return sum(((index + 1) * self.weights[index]).sum() for index in taken)


def branch_gradients(
    communicator: Communicator, taken: list[list[list[int]]], bucket_bytes: int
) -> list[list[np.ndarray | None]]:
    """Return the gradients of Branches for each pass; ``taken[step][rank]`` are its weights."""
    model = Branches()
    gradients: Gradients = gradients_over(communicator, model, bucket_bytes)
    found = []
    for by_rank in taken:
        gradients.backward(gradients.model(by_rank[communicator.rank]))
        each = [weight.grad for weight in model.weights]
        found.append([None if grad is None else grad.numpy().copy() for grad in each])
    return found


def issue_order(communicator: Communicator, taken: list[list[int]]) -> list[tuple[int, bool]]:
    """Return the elements of each all-reduce, and whether backward was still to compute others."""
    model = Branches()
    seen: list[tuple[int, bool]] = []
    computing = [True]

    class Watched:
        name, rank, size = "watched", communicator.rank, communicator.size

        def all_reduce_async(self, tensor: torch.Tensor, op: str) -> Any:
            seen.append((tensor.numel(), computing[0]))
            return communicator.all_reduce_async(tensor, op)

    watched: Any = Watched()
    gradients = BucketedGradients(watched, model, bucket_bytes=1)
    loss = model(taken[communicator.rank])
    backward = loss.backward

    def and_then() -> None:
        backward()
        computing[0] = False

    loss.backward = and_then  # type: ignore[method-assign]
    gradients.backward(loss)
    return seen


def train_and_save(
    communicator: Communicator, line: str, folder: str, steps: int, resume: bool
) -> tuple[list[float], Arrays]:
    """Train up to ``steps`` steps and save; return the losses, and all weights and biases."""
    trainer = Trainer(options(line), communicator, corpus(), torch.device("cpu"))
    if resume:
        state = checkpoint.read_everywhere(communicator, Path(folder) / str(communicator.rank))
        checkpoint.check_settings(state, trainer.settings())
        trainer.load(state)
    trainer.check_alike()
    seen = []
    while trainer.step_count < steps:
        seen.append(trainer.step().loss)
    if communicator.rank == 0:
        checkpoint.write(Path(folder) / "0", steps, trainer.state())
    state_dict = trainer.model.state_dict()
    moments = trainer._optimizer.state_dict()["state"]
    kept = {name: value.numpy().copy() for name, value in state_dict.items()}
    for index, moment in moments.items():
        kept[f"moment {index}"] = moment["exp_avg_sq"].numpy().copy()
    return seen, kept


def message_of_error(communicator: Communicator, kind: str, where: str) -> str:
    """Return the message of the error that every rank is to see."""
    rank = communicator.rank
    try:
        if kind == "seed":
            trainer = Trainer(
                options(f"--batch 2 --seed {rank}"), communicator, corpus(), torch.device("cpu")
            )
            trainer.check_alike()
        elif kind == "weights":
            trainer = Trainer(options("--batch 2"), communicator, corpus(), torch.device("cpu"))
            if rank == 1:
                trainer.model.lm_head.weight.data[3, 7] += 1e-6
            trainer.check_alike()
        elif kind == "used":
            folder = Path(where) if rank == 0 else Path("/nonexistent")
            checkpoint.check_unused(communicator, folder)
        else:
            checkpoint.read_everywhere(communicator, Path("/nonexistent"))
    except OptionError as error:
        return str(error)
    return "no error"


def stops(communicator: Communicator, rank_whose_time_is_up: int) -> bool:
    """Return whether a step tells this rank to stop."""
    trainer = Trainer(
        options("--batch 2 --sequence 16"), communicator, corpus(), torch.device("cpu")
    )
    return trainer.step(time_is_up=communicator.rank == rank_whose_time_is_up).time_is_up


def goes_with_its_group(communicator: Communicator) -> bool:
    """Return whether a trainer's model, and the group it holds, go once the trainer is dropped."""
    trainer = Trainer(options(), communicator, corpus(), torch.device("cpu"))
    trainer.step()
    model = weakref.ref(trainer._gradients.model)
    del trainer
    gc.collect()
    return model() is None
