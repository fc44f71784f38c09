# SPDX-License-Identifier: Apache-2.0
"""Groups of torch.distributed: made of others, destroyed, ended by errors."""

from typing import Any

import pytest

CHECKS = "groups.py"
RANKS = 4

pytestmark = pytest.mark.slow


def test_groups(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
