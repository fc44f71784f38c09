# SPDX-License-Identifier: Apache-2.0
"""Collectives on arrays of any layout: random strides, offsets, permutations, expanded axes,
and negative strides, NumPy's and PyTorch's mixed, against NumPy. The ranks are threads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ciuic
import numpy
import pytest
import torch
from array_layouts import DTYPES, RANKS, Layout, as_numpy, layouts
from ciuic import CiuicContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_threads import joined_contexts, on_all_ranks

FIXTURES = [HealthCheck.function_scoped_fixture]  # no_launcher: once is enough


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CiuicContext]]:
    yield from joined_contexts(RANKS, tmp_path_factory.mktemp("layouts"))


@dataclass
class Case:
    operation: str
    dtype: str
    shape: tuple[int, ...]
    layouts: list[Layout]
    op: ciuic.ReduceOp
    root: int
    seed: int

    def values(self) -> list[numpy.ndarray]:
        """Of each rank: small whole numbers, so that every sum is exact."""
        random = numpy.random.default_rng(self.seed)
        dtype = DTYPES[self.dtype]
        return [random.integers(1, 4, self.shape).astype(dtype) for _ in range(RANKS)]


READ_ONLY = ("reduce", "all_gather")
OPERATIONS = ("all_reduce", "several", "broadcast", *READ_ONLY)
OPS = [CiuicContext.SUM, CiuicContext.MIN, CiuicContext.MAX, CiuicContext.PRODUCT]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    operation = draw(st.sampled_from(OPERATIONS))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    # Where arrays are written, elements that share memory are refused: see below.
    expand = operation in READ_ONLY
    return Case(
        operation,
        draw(st.sampled_from(sorted(DTYPES))),
        shape,
        [draw(layouts(len(shape), expand)) for _ in range(RANKS)],
        draw(st.sampled_from(OPS)),
        draw(st.integers(0, RANKS - 1)),
        draw(st.integers(0, 2**32 - 1)),
    )


def reduced(op: ciuic.ReduceOp, arrays: list[numpy.ndarray]) -> numpy.ndarray:
    functions = {
        CiuicContext.SUM: numpy.add,
        CiuicContext.MIN: numpy.minimum,
        CiuicContext.MAX: numpy.maximum,
        CiuicContext.PRODUCT: numpy.multiply,
    }
    exact = functions[op].reduce([x.astype(numpy.float64) for x in arrays])
    return numpy.asarray(exact).astype(arrays[0].dtype)


def run(case: Case, context: CiuicContext, x: Any, blocking: bool) -> Any:
    if case.operation == "all_reduce":
        if blocking:
            return context.all_reduce(x, case.op)
        return context.all_reduce_async(x, case.op).wait()
    if case.operation == "several":
        return ciuic.all_reduce([x], case.op, context)
    if case.operation == "broadcast":
        if blocking:
            return context.broadcast(x, case.root)
        return context.broadcast_async(x, case.root).wait()
    if case.operation == "reduce":
        if blocking:
            return context.reduce(x, case.root, case.op)
        return context.reduce_async(x, case.root, case.op).wait()
    if blocking:
        return context.all_gather(x)
    return context.all_gather_async(x).wait()


@settings(max_examples=150, deadline=None, suppress_health_check=FIXTURES)
@given(case=cases(), blocking=st.booleans())
def test_any_layout(contexts: list[CiuicContext], case: Case, blocking: bool) -> None:
    laid = [layout.make(values) for layout, values in zip(case.layouts, case.values(), strict=True)]
    inputs = [one.values() for one in laid]
    results = on_all_ranks(
        RANKS, lambda rank: run(case, contexts[rank], laid[rank].array, blocking)
    )

    for rank in range(RANKS):
        assert laid[rank].surroundings_stay()
        after = laid[rank].values()
        if case.operation in ("all_reduce", "several"):
            assert (after == reduced(case.op, inputs)).all()
        elif case.operation == "broadcast":
            assert (after == inputs[case.root]).all()
        else:
            assert (after == inputs[rank]).all()
        if case.operation in ("all_reduce", "broadcast"):
            assert results[rank] is laid[rank].array
        if case.operation == "reduce":
            assert (results[rank] is None) == (rank != case.root)
            if rank == case.root:
                assert type(results[rank]) is type(laid[rank].array)
                got = as_numpy(results[rank])
                assert got.shape == case.shape
                assert (got == reduced(case.op, inputs)).all()
        if case.operation == "all_gather":
            for got, expected in zip(results[rank], inputs, strict=True):
                assert type(got) is type(laid[rank].array)
                assert as_numpy(got).shape == case.shape
                assert (as_numpy(got) == expected).all()


@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
@given(layout=layouts(2, expand=True), rank=st.integers(0, RANKS - 1))
def test_shared_elements_are_not_written(
    contexts: list[CiuicContext], layout: Layout, rank: int
) -> None:
    """Refused where it is called, before anything is sent: the group is as it was."""
    shape = (3, 2)
    laid = layout.make(numpy.ones(shape, dtype=numpy.float32))
    before = laid.values()
    if layout.overlaps(shape):
        for call in (contexts[rank].all_reduce, contexts[rank].broadcast):
            with pytest.raises(ValueError, match=r"share memory|read-only"):
                call(laid.array)
    assert (laid.values() == before).all()
    assert laid.surroundings_stay()
    on_all_ranks(RANKS, lambda each: contexts[each].barrier())


# ---- no elements: still one operation, in which the ranks meet ----

EMPTY = [
    lambda: numpy.empty(0, dtype=numpy.float32),
    lambda: numpy.empty((3, 0, 2))[::2],
    lambda: torch.empty(0),
    lambda: torch.empty(2, 0, dtype=torch.bfloat16).T,
]


@pytest.mark.parametrize("make", EMPTY)
def test_no_elements(contexts: list[CiuicContext], make: Callable[[], Any]) -> None:
    def use(rank: int) -> None:
        context = contexts[rank]
        for op in [*OPS, CiuicContext.AVG]:
            x = make()
            assert context.all_reduce(x, op) is x
            result = context.reduce(make(), 1, op)
            assert (result is None) == (rank != 1)
            if result is not None:
                assert tuple(result.shape) == tuple(make().shape)
        x = make()
        assert context.broadcast(x, 2) is x
        gathered = context.all_gather(make())
        assert [tuple(each.shape) for each in gathered] == [tuple(make().shape)] * RANKS
        ciuic.all_reduce([make(), make()], context=context)
        ciuic.all_reduce([], context=context)

    on_all_ranks(RANKS, use)


@pytest.mark.parametrize("make", EMPTY)
def test_no_elements_is_a_synchronisation_point(
    contexts: list[CiuicContext], make: Callable[[], Any]
) -> None:
    """Nothing ends on a rank that needs another one before that one has called it."""
    starts = {
        "all_reduce": lambda context: context.all_reduce_async(make()),
        "all_gather": lambda context: context.all_gather_async(make()),
        "broadcast": lambda context: context.broadcast_async(make(), 0),
        "reduce": lambda context: context.reduce_async(make(), 2),
    }
    for name, start in starts.items():
        late = 0 if name == "broadcast" else 1
        early = [rank for rank in range(RANKS) if rank != late]
        handles = {rank: start(contexts[rank]) for rank in early}
        needing = [2] if name == "reduce" else early
        for rank in needing:
            for _ in range(20):  # each look lets the engine go on
                assert not handles[rank].done(), f"{name} has ended on rank {rank}"
        handles[late] = start(contexts[late])
        on_all_ranks(RANKS, lambda rank, handles=handles: handles[rank].wait())
