# SPDX-License-Identifier: Apache-2.0
"""What is of CUDA tensors alone, all ranks on one (fake) GPU: by way of the host."""

from typing import Any

import pytest

CHECKS = "gpus.py"
RANKS = 2
ENVIRONMENT = {"FAKE_GPUS": "one", "GROUP_IS_BY": "native"}

pytestmark = pytest.mark.slow


def test_gpus(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
