# SPDX-License-Identifier: Apache-2.0
"""A small DeepSeek-V3: the library's model with every part that is DeepSeek's, only narrow.

Multi-head latent attention (queries and keys through low-rank projections, a rotary part beside
them), a dense first layer, then routed experts chosen from groups, with one shared expert.
"""

from __future__ import annotations

import os

# The configuration is in this file and the weights are random: nothing is ever fetched.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

VOCABULARY = 256  # a token is a byte


def configuration(sequence: int) -> DeepseekV3Config:
    """Return the configuration: 1.06 million weights, several steps a second on two cores."""
    return DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        first_k_dense_replace=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=64,
        kv_lora_rank=32,
        qk_rope_head_dim=16,
        qk_nope_head_dim=16,
        v_head_dim=32,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=4,
        topk_group=2,
        max_position_embeddings=sequence,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        num_mtp_layers=0,
    )


def build(sequence: int, seed: int, precision: str, device: torch.device) -> DeepseekV3ForCausalLM:
    """Return the model with weights drawn from ``seed``: the same on every rank, machine, device.

    The weights are float32, float64 for ``precision="float64"``; with bfloat16 only the
    arithmetic under :func:`arithmetic` is 16 bits wide, so the gradients stay float32.
    """
    torch.manual_seed(seed)
    config = configuration(sequence)
    # The library's grouped matrix product is faster, but takes no float64, and not every GPU.
    grouped = device.type == "cpu" and precision != "float64"
    config._experts_implementation = "grouped_mm" if grouped else "eager"
    model = DeepseekV3ForCausalLM(config)
    if precision == "float64":
        model = model.double()
    for router in routers(model):
        # The library means the router to compute in float32; autocast would undo that, and
        # experts would then be chosen by scores with 8 bits.
        router.forward = torch.autocast(device.type, enabled=False)(router.forward)
    return model.to(device)


def routers(model: torch.nn.Module) -> list[DeepseekV3TopkRouter]:
    """Return the routers, one a layer with experts, from the first layer on."""
    return [module for module in model.modules() if isinstance(module, DeepseekV3TopkRouter)]


def arithmetic(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass runs."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
