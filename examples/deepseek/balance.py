# SPDX-License-Identifier: Apache-2.0
"""Keep the experts evenly loaded without a loss term, as DeepSeek-V3 is trained.

Each step every router's bias moves by a fixed amount: up for an expert that got fewer tokens than
the mean over all ranks, down for one that got more. The bias takes part in the choice of experts
only, never in their weights. The library holds the bias, but leaves it at zero.

Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437 (2024), section 2.1.2.
"""

from __future__ import annotations

from typing import Any

import torch

from deepseek.model import routers

SPEED = 0.001  # the report's bias update speed


class ExpertBalance:
    """Counts the tokens that each expert of ``model`` gets, and moves the routers' biases."""

    def __init__(self, model: torch.nn.Module, speed: float = SPEED) -> None:
        self._routers = routers(model)
        self._speed = speed
        experts = self._routers[0].num_experts
        device = self._routers[0].e_score_correction_bias.device
        self._load = torch.zeros(len(self._routers), experts, dtype=torch.int64, device=device)
        for layer, router in enumerate(self._routers):
            router.register_forward_hook(self._count(layer))

    def take_load(self) -> torch.Tensor:
        """Return this rank's tokens per expert since the last call, int64 ``[layers, experts]``."""
        load, self._load = self._load, torch.zeros_like(self._load)
        return load

    def move(self, load: torch.Tensor) -> None:
        """Move the biases by the sign of (mean - load); ``load`` is the sum over all ranks."""
        direction = torch.sign(load.mean(dim=1, keepdim=True, dtype=torch.float64) - load)
        for router, row in zip(self._routers, direction, strict=True):
            bias = router.e_score_correction_bias
            bias.add_(row.to(bias.dtype), alpha=self._speed)

    def _count(self, layer: int) -> Any:
        def count(module: torch.nn.Module, _inputs: Any, outputs: Any) -> None:
            if module.training:  # validation must not steer the training
                chosen = outputs[2].flatten()  # outputs: logits, weights, chosen experts
                self._load[layer] += torch.bincount(chosen, minlength=self._load.shape[1])

        return count
