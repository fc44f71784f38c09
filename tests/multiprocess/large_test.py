# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 bytes and elements; and system calls that move less than they are asked to."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for LD_PRELOAD; see limit_calls.c."""
    source = Path(__file__).parent / "programs" / "limit_calls.c"
    library = tmp_path_factory.mktemp("limiter") / "liblimit_calls.so"
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(source), "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "shm", "tls"])
def test_calls_that_move_less(ciuic_run, limiter: Path, transport: str) -> None:
    """At most 1 MiB each; below what one asks for at once it would be no system's way."""
    variables = {"CIUIC_TRANSPORT": "shm" if transport == "shm" else "tcp"}
    if transport == "tls":
        variables["CIUIC_TLS"] = "1"
    result = ciuic_run(
        3,
        "large.py",
        str(5_000_011),
        LD_PRELOAD=str(limiter),
        LIMIT_CALLS=str(1 << 20),
        **variables,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("moved 5000011") == 3


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("options", [["CIUIC_TRANSPORT=shm"], ["CIUIC_TRANSPORT=tcp"]])
def test_more_than_two_gibibytes(ciuic_run, options: Sequence[str]) -> None:
    """2.2 GiB; a process holds it once, and the check needs a little more."""
    elements = 2_362_232_013
    variables = dict(option.split("=") for option in options)
    result = ciuic_run(2, "large.py", str(elements), **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(f"moved {elements}") == 2
