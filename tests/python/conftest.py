# SPDX-License-Identifier: Apache-2.0
"""A context of one rank: every collective is a local copy."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ciuic import CiuicContext, plan

sys.path.insert(0, str(Path(__file__).resolve().parent))  # recordings.py, rank_threads.py


@pytest.fixture(autouse=True)
def no_launcher(
    monkeypatch: pytest.MonkeyPatch, environment: Callable[..., dict[str, str]]
) -> None:
    """No launcher's variables, whatever started the tests."""
    for name in os.environ.keys() - environment():
        monkeypatch.delenv(name)


@pytest.fixture
def ctx(no_launcher: None) -> Iterator[CiuicContext]:
    with CiuicContext(world_size=1, rank=0) as context:
        yield context


@pytest.fixture
def no_plan_stays() -> Iterator[None]:
    """Plans of one's own that a test registers end with it."""
    yield
    for operation, names in plan.registered().items():
        for name in names:
            plan.unregister(name, operation)
