# SPDX-License-Identifier: Apache-2.0
"""The same operations on CUDA tensors, each rank on a (fake) GPU of its own: by NCCL."""

from typing import Any

import pytest

CHECKS = "operations.py"
RANKS = 3
# CUDA tensors are dense, and NCCL has neither tags, nor messages from anybody; of messages that are
# not called together one waits for the other.
LEFT_OUT = "check_sparse,check_messages,check_messages_by_tag,check_messages_from_anywhere"
ENVIRONMENT = {"FAKE_GPUS": "own", "LEFT_OUT": LEFT_OUT}

pytestmark = pytest.mark.slow


def test_operations(check: str, outcomes: Any) -> None:
    outcomes.assert_passed(check)


def test_ranks_end_well(outcomes: Any) -> None:
    outcomes.assert_ended_well()
