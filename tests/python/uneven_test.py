# SPDX-License-Identifier: Apache-2.0
"""Counts and arguments that do not fit together across ranks: one MismatchError, the same on every
rank, also on those that the two have nothing to do with. The ranks are threads.
"""

import re
from collections.abc import Callable
from typing import Any

import ciuic
import numpy
import pytest
from ciuic import CiuicContext
from rank_threads import on_all_ranks, outcomes

RANKS = 3
Call = Callable[[CiuicContext, int], Any]


def ones(rows: int, dtype: str = "float64") -> numpy.ndarray:
    return numpy.ones((rows, 2), dtype=dtype)


# Rank 1 differs from the others, or from what rank 0 expects.
CASES: dict[str, tuple[Call, str]] = {
    "all_to_all_v: gives another number than is expected": (
        lambda ctx, r: ctx.all_to_all_v(
            ones(7 if r == 1 else 6), [3 if r == 1 else 2, 2, 2], [2] * 3
        ),
        "rank 1 gives 6 elements, rank 0 expects 4",
    ),
    "all_to_all_v: gives rows where none are expected": (
        lambda ctx, r: ctx.all_to_all_v(
            ones(3 if r == 1 else 0), [3 if r == 1 else 0, 0, 0], [0, 0, 0]
        ),
        "rank 1 gives 6 elements, rank 0 expects 0",
    ),
    "all_to_all_v: expects rows that are not given": (
        lambda ctx, r: ctx.all_to_all_v(ones(0), [0, 0, 0], [1 if r == 1 else 0, 0, 0]),
        "rank 0 gives 0 elements, rank 1 expects 2",
    ),
    "all_to_all_v: another width": (
        lambda ctx, r: ctx.all_to_all_v(numpy.ones((3, 4 if r == 1 else 2)), [1, 1, 1], [1, 1, 1]),
        "rank . gives",
    ),
    "all_to_all_v: told on some ranks alone": (
        lambda ctx, r: ctx.all_to_all_v(ones(3), [1, 1, 1], None if r == 1 else [1, 1, 1]),
        "all_to_all",
    ),
    "all_gather_v: other counts": (
        lambda ctx, r: ctx.all_gather_v(
            ones(2), [2, 2, 3 if r == 1 else 2] if r != 2 else [2, 2, 2]
        ),
        "all_gather_v",
    ),
    "all_gather_v: the same sum of other counts": (
        lambda ctx, r: ctx.all_gather_v(ones(2), [1, 2, 3] if r == 1 else [2, 2, 2]),
        "all_gather_v",
    ),
    "all_gather_v: told on some ranks alone": (
        lambda ctx, r: ctx.all_gather_v(ones(2), None if r == 1 else [2, 2, 2]),
        "all_gather",
    ),
    "gather_v: another number than the root expects": (
        lambda ctx, r: ctx.gather_v(
            ones(3 if r == 1 else 2), 0, [2, 3, 2] if r == 1 else [2, 2, 2]
        ),
        "rank 1 gives 6 elements, rank 0 expects 4",
    ),
    "scatter_v: another number than the root gives": (
        lambda ctx, r: ctx.scatter_v(
            ones(3 if r == 1 else 2), [ones(2), ones(2), ones(2)] if r == 0 else None
        ),
        "rank 0 gives 4 elements, rank 1 expects 6",
    ),
    "reduce_scatter_v: other counts": (
        lambda ctx, r: ctx.reduce_scatter_v(ones(6), counts=[1, 2, 3] if r == 1 else [2, 2, 2]),
        "reduce_scatter_v",
    ),
    "reduce_scatter_v: another op": (
        lambda ctx, r: ctx.reduce_scatter_v(
            ones(6), CiuicContext.MAX if r == 1 else CiuicContext.SUM, counts=[2, 2, 2]
        ),
        "reduce_scatter_v",
    ),
    "even and uneven": (
        lambda ctx, r: (
            ctx.all_to_all(ones(3)) if r == 1 else ctx.all_to_all_v(ones(3), [1] * 3, [1] * 3)
        ),
        "all_to_all",
    ),
    "another dtype": (
        lambda ctx, r: ctx.all_to_all(ones(3, "float32" if r == 1 else "float64")),
        "float32",
    ),
    "another root": (lambda ctx, r: ctx.gather(ones(3), dst=1 if r == 1 else 0), "gather"),
    "another operation": (
        lambda ctx, r: ctx.gather(ones(3)) if r == 1 else ctx.reduce(ones(3)),
        "gather",
    ),
    "a message of another size": (
        lambda ctx, r: [
            lambda: ctx.recv(ones(3), 1),
            lambda: ctx.send(ones(2), 0),
            ctx.barrier,
        ][r](),
        "rank 1 sends rank 0 4 float64 elements",
    ),
    "a message of another dtype": (
        lambda ctx, r: [
            lambda: ctx.recv(ones(30_000), 1),
            lambda: ctx.send(ones(30_000, "int64"), 0),
            ctx.barrier,
        ][r](),
        "int64",
    ),
}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("case", CASES)
def test_one_error_on_every_rank(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, case: str, transport: str
) -> None:
    monkeypatch.setenv("CIUIC_TRANSPORT", transport)
    store = f"file://{tmp_path}/store"
    joined = on_all_ranks(
        RANKS,
        lambda rank: CiuicContext(RANKS, rank, store=store, group_name="uneven", timeout_s=30),
    )
    call, text = CASES[case]

    def run(rank: int) -> None:
        call(joined[rank], rank)
        joined[rank].barrier()  # of who had ended well

    errors = outcomes(RANKS, run)
    for error in errors:
        assert isinstance(error, ciuic.MismatchError), (case, errors)
    assert len({str(error) for error in errors}) == 1, errors
    assert re.search(text, str(errors[0])), errors[0]
    for context in joined:
        context.close()
