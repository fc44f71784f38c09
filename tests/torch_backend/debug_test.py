# SPDX-License-Identifier: Apache-2.0
"""With TORCH_DISTRIBUTED_DEBUG=DETAIL torch wraps the backend, and compares calls beforehand."""

from typing import Any

import pytest

CHECKS = "debug.py"
RANKS = 2
ENVIRONMENT = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}

pytestmark = pytest.mark.slow


def test_debug(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)
