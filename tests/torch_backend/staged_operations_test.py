# SPDX-License-Identifier: Apache-2.0
"""The same operations on CUDA tensors, all ranks on one (fake) GPU: by way of the host."""

from typing import Any

import pytest

CHECKS = "operations.py"
RANKS = 3
ENVIRONMENT = {"FAKE_GPUS": "one", "LEFT_OUT": "check_sparse"}  # CUDA tensors are dense

pytestmark = pytest.mark.slow


def test_operations(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
