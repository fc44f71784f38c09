# SPDX-License-Identifier: Apache-2.0
"""What is of CUDA tensors alone, each rank on a (fake) GPU of its own: by NCCL."""

from typing import Any

import pytest

CHECKS = "gpus.py"
RANKS = 2
ENVIRONMENT = {"FAKE_GPUS": "own", "GROUP_IS_BY": "nccl"}

pytestmark = pytest.mark.slow


def test_gpus(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
