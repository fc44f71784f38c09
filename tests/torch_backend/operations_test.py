# SPDX-License-Identifier: Apache-2.0
"""Every operation of torch.distributed, blocking and asynchronous."""

from typing import Any

import pytest

CHECKS = "operations.py"
RANKS = 3

pytestmark = pytest.mark.slow


def test_operations(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
