# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own distributed suite: what gloo passes, this backend passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "conformance"


def names(file: Path) -> set[str]:
    """The first word of each line that is no comment."""
    lines = file.read_text().splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "ranks", [pytest.param(2, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.nightly)]
)
def test_passes_what_gloo_passes(ranks: int, tmp_path: Path) -> None:
    wanted = names(HERE / f"gloo-{ranks}-ranks.pass.txt") - names(HERE / "exceptions.txt")
    assert len(wanted) > 80
    environment = {**os.environ, "ALIAS": "gloo", "PYTHON": sys.executable}
    subprocess.run(
        [HERE / "run.sh", "ciuic", "ciuic.torch", str(ranks), tmp_path / "suite"],
        env=environment,
        check=False,
        capture_output=True,
    )
    log = (tmp_path / "suite.log").read_text()
    failed = sorted(wanted - names(tmp_path / "suite.passed"))
    assert not failed, f"{failed}\n{log[-20000:]}"


def test_exceptions_are_of_tests_that_gloo_passes() -> None:
    passed = names(HERE / "gloo-2-ranks.pass.txt") | names(HERE / "gloo-8-ranks.pass.txt")
    assert names(HERE / "exceptions.txt") <= passed
