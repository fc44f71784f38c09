# SPDX-License-Identifier: Apache-2.0
"""Every dtype, op and transport against ml_dtypes, with two and three ranks."""

import pytest
from ciuic import ReduceOp, _native


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_pair(ciuic_run, ranks: int, transport: str) -> None:
    result = ciuic_run(ranks, "dtypes.py", CIUIC_TRANSPORT=transport)
    assert result.returncode == 0, result.stdout + result.stderr
    codes = _native.dtype_codes.values()
    pairs = sum(_native.is_reducible(code, op) for code in codes for op in ReduceOp)
    assert result.stdout.count(f"all good: {pairs} pairs") == ranks
