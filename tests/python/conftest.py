# SPDX-License-Identifier: Apache-2.0
"""A context of one rank: every collective is a local copy."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ciuic import CiuicContext

sys.path.insert(0, str(Path(__file__).resolve().parent))  # recordings.py

_OF_LAUNCHERS = ("RANK", "OMPI_", "PMI_", "SLURM_", "LOCAL_", "WORLD_SIZE", "CIUIC_", "MASTER_")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher's variables, whatever started the tests."""
    import os

    for name in list(os.environ):
        if name.startswith(_OF_LAUNCHERS):
            monkeypatch.delenv(name)


@pytest.fixture
def ctx(no_launcher: None) -> Iterator[CiuicContext]:
    with CiuicContext(world_size=1, rank=0) as context:
        yield context
