# SPDX-License-Identifier: Apache-2.0
"""The same operations on CUDA tensors, each rank on a (fake) GPU of its own: by NCCL."""

from typing import Any

import pytest
from ranks_of_checks import NCCL_HAS_NOT

CHECKS = "operations.py"
RANKS = 3
ENVIRONMENT = {"FAKE_GPUS": "own", "LEFT_OUT": NCCL_HAS_NOT}

pytestmark = pytest.mark.slow


def test_operations(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
