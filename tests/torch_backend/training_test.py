# SPDX-License-Identifier: Apache-2.0
"""What torch builds on its process groups: DDP, FSDP2, DTensor, pipelines, checkpoints, RPC."""

from typing import Any

import pytest

CHECKS = "training.py"
RANKS = 2

pytestmark = pytest.mark.slow


def test_training(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
