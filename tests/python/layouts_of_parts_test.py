# SPDX-License-Identifier: Apache-2.0
"""What is cut into parts, put together or sent to one rank, on arrays of any layout: random
strides, offsets, permutations, expanded axes, negative strides, NumPy's and PyTorch's mixed,
against NumPy. The ranks are threads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from array_layouts import (
    DTYPES,
    RANKS,
    Laid,
    Layout,
    as_numpy,
    layouts,
)
from ciuic import CiuicContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_threads import joined_contexts, on_all_ranks

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CiuicContext]]:
    yield from joined_contexts(RANKS, tmp_path_factory.mktemp("layouts"))


@dataclass
class Case:
    """``inputs[r]`` are the arrays that rank r gives, ``outputs[r]`` those that it has written."""

    operation: str
    dtype: str
    rows: list[list[int]]  # of rank r, for rank s
    columns: int
    inputs: list[list[Layout]]
    outputs: list[Layout]
    root: int
    seed: int


OPERATIONS = [
    "reduce_scatter",
    "reduce_scatter_v",
    "all_to_all",
    "all_to_all_v",
    "all_gather_v",
    "gather",
    "gather_v",
    "scatter",
    "scatter_v",
    "messages",
]
UNEVEN = ("reduce_scatter_v", "all_to_all_v", "all_gather_v", "gather_v", "scatter_v")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    operation = draw(st.sampled_from(OPERATIONS))
    rows = [[draw(st.integers(0, 4))] * RANKS] * RANKS
    if operation in UNEVEN:
        counts = st.lists(st.integers(0, 4), min_size=RANKS, max_size=RANKS)
        rows = [draw(counts)] * RANKS
        if operation == "all_to_all_v":
            rows = [draw(counts) for _ in range(RANKS)]
    return Case(
        operation,
        draw(st.sampled_from(sorted(DTYPES))),
        rows,
        draw(st.integers(0, 3)),
        [[draw(layouts(2, expand=True)) for _ in range(RANKS)] for _ in range(RANKS)],
        [draw(layouts(2, expand=False)) for _ in range(RANKS)],
        draw(st.integers(0, RANKS - 1)),
        draw(st.integers(0, 2**32 - 1)),
    )


class Ranks:
    """All ranks' arrays of a case."""

    def __init__(self, case: Case) -> None:
        random = numpy.random.default_rng(case.seed)
        self.case = case

        def laid(layout: Layout, rows: int) -> Laid:
            values = random.integers(1, 4, (rows, case.columns)).astype(DTYPES[case.dtype])
            return layout.make(values)

        # Of rank r, for rank s; and as what they are before the operation.
        self.parts = [
            [laid(case.inputs[r][s], case.rows[r][s]) for s in range(RANKS)] for r in range(RANKS)
        ]
        self.values = [[part.values() for part in parts] for parts in self.parts]
        self.outputs = [laid(case.outputs[r], case.rows[case.root][r]) for r in range(RANKS)]

    def run(self, context: CiuicContext, end: str) -> Any:
        case, rank = self.case, context.rank
        arrays = [part.array for part in self.parts[rank]]
        own = arrays[rank]
        output = self.outputs[rank].array
        root = case.root
        call = getattr(context, case.operation + end, None)
        if case.operation.startswith(("reduce_scatter", "all_to_all")):
            return call(arrays)
        if case.operation == "all_gather_v":
            return call(own)
        if case.operation.startswith("gather"):
            return call(own, root)
        if case.operation.startswith("scatter"):
            return call(output, arrays if rank == root else None, root)
        # Everybody's part for the next rank goes there.
        handle = context.send_async(arrays[(rank + 1) % RANKS], (rank + 1) % RANKS)
        source = context.recv(output, (rank - 1) % RANKS)
        handle.wait()
        return source

    def check(self, rank: int, result: Any) -> None:
        case, root = self.case, self.case.root
        got: list[Any] = []
        expected: list[numpy.ndarray] = []
        if case.operation.startswith("reduce_scatter"):
            total = sum(self.values[r][rank].astype(numpy.float64) for r in range(RANKS))
            got, expected = [result], [total.astype(DTYPES[case.dtype])]
        elif case.operation.startswith("all_to_all"):
            got, expected = result, [self.values[r][rank] for r in range(RANKS)]
        elif case.operation == "all_gather_v" or (
            case.operation.startswith("gather") and rank == root
        ):
            got, expected = result, [self.values[r][r] for r in range(RANKS)]
        elif case.operation.startswith("gather"):
            assert result is None
        elif case.operation.startswith("scatter"):
            assert result is self.outputs[rank].array
            got, expected = [result], [self.values[root][rank]]
        else:
            assert result == (rank - 1) % RANKS
            got, expected = [self.outputs[rank].array], [self.values[result][rank]]
        for one, right in zip(got, expected, strict=True):
            assert as_numpy(one).dtype == right.dtype
            assert as_numpy(one).shape == right.shape
            assert (as_numpy(one) == right).all()

    def check_memory(self) -> None:
        """What is no output, and what lies about, is as it was."""
        for parts, values in zip(self.parts, self.values, strict=True):
            for part, before in zip(parts, values, strict=True):
                assert (part.values() == before).all()
                assert part.surroundings_stay()
        assert all(output.surroundings_stay() for output in self.outputs)


@settings(max_examples=120, deadline=None, suppress_health_check=FIXTURES)
@given(case=cases(), blocking=st.booleans())
def test_any_layout(contexts: list[CiuicContext], case: Case, blocking: bool) -> None:
    ranks = Ranks(case)

    def call(rank: int) -> Any:
        if blocking or case.operation == "messages":
            return ranks.run(contexts[rank], "")
        return ranks.run(contexts[rank], "_async").wait()

    for rank, result in enumerate(on_all_ranks(RANKS, call)):
        ranks.check(rank, result)
    ranks.check_memory()
