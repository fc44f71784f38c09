# SPDX-License-Identifier: Apache-2.0
"""Every collective on arrays of any layout: random strides, offsets, permutations, expanded axes,
and negative strides, NumPy's and PyTorch's mixed, against NumPy. The ranks are threads.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ciuic
import ml_dtypes
import numpy
import pytest
import torch
from ciuic import CiuicContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RANKS = 3
FIXTURES = [HealthCheck.function_scoped_fixture]  # no_launcher: once is enough
FILL = 77  # what lies between the elements, and must stay
DTYPES = {
    "float32": numpy.float32,
    "int64": numpy.int64,
    "uint8": numpy.uint8,
    "bfloat16": ml_dtypes.bfloat16,
}


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CiuicContext]]:
    store = f"file://{tmp_path_factory.mktemp('layouts')}/store"
    joined: list[CiuicContext | None] = [None] * RANKS

    def join(rank: int) -> None:
        joined[rank] = CiuicContext(RANKS, rank, store=store, group_name="layouts", timeout_s=60)

    on_all_ranks(join)
    yield [context for context in joined if context is not None]
    for context in joined:
        if context is not None:
            context.close()


def on_all_ranks(call: Callable[[int], Any]) -> list[Any]:
    """What ``call(rank)`` returned on each; raises what the first rank raised."""
    results: list[Any] = [None] * RANKS
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = call(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@dataclass
class Axis:
    """How one axis lies in memory.

    Attributes:
        step: Elements of the base from one to the next; negative: backwards; 0: one element for
            all.
        before: Elements of the base in front.
        after: And behind.
    """

    step: int
    before: int
    after: int


@dataclass
class Layout:
    """One rank's array: whose it is, how each axis lies, and their order in memory."""

    library: str
    axes: list[Axis]
    order: list[int]

    def overlaps(self, shape: tuple[int, ...]) -> bool:
        return 0 not in shape and any(
            axis.step == 0 and length > 1 for axis, length in zip(self.axes, shape, strict=True)
        )

    def make(self, values: numpy.ndarray) -> "Laid":
        """An array of this layout with these values; of those that share an element, one."""
        lengths = values.shape
        reach = [abs(axis.step) * max(0, n - 1) for axis, n in zip(self.axes, lengths, strict=True)]
        extents = [
            axis.before + far + 1 + axis.after for axis, far in zip(self.axes, reach, strict=True)
        ]
        strides = [0] * len(lengths)
        size = 1
        for i in reversed(self.order):
            strides[i] = size
            size *= extents[i]
        offset = 0
        for i, axis in enumerate(self.axes):
            offset += strides[i] * (axis.before + (reach[i] if axis.step < 0 else 0))
            strides[i] *= axis.step
        memory = numpy.full(size, FILL, dtype=values.dtype)
        laid = Laid(memory, self.library, lengths, strides, offset)
        laid.numpy[...] = values
        return laid


class Laid:
    """An array within its memory.

    Attributes:
        array: Of the library that was asked for.
        numpy: The same elements as NumPy's.
    """

    def __init__(
        self,
        memory: numpy.ndarray,
        library: str,
        shape: tuple[int, ...],
        strides: list[int],
        offset: int,
    ) -> None:
        self._memory = memory
        self._is_element = numpy.zeros(memory.size, dtype=bool)
        view_of(self._is_element, shape, strides, offset)[...] = True
        self.numpy = view_of(memory, shape, strides, offset)
        self.array: Any = self.numpy
        if library == "torch":
            self.array = as_torch(memory).as_strided(shape, strides, offset)

    def values(self) -> numpy.ndarray:
        return self.numpy.copy()

    def surroundings_stay(self) -> bool:
        """Whether what is no element is as it was."""
        return bool((self._memory[~self._is_element].astype(numpy.float64) == FILL).all())


def view_of(
    memory: numpy.ndarray, shape: tuple[int, ...], strides: list[int], offset: int
) -> numpy.ndarray:
    in_bytes = [stride * memory.itemsize for stride in strides]
    return numpy.lib.stride_tricks.as_strided(memory[offset:], shape, in_bytes)


def as_torch(memory: numpy.ndarray) -> torch.Tensor:
    if memory.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(memory.view(numpy.uint16)).view(torch.bfloat16)
    return torch.from_numpy(memory)


@st.composite
def layouts(draw: st.DrawFn, axes: int, expand: bool) -> Layout:
    library = draw(st.sampled_from(["numpy", "torch"]))
    steps = [1, 2, 3] + [-1, -2] * (library == "numpy") + [0] * expand
    return Layout(
        library,
        [
            Axis(
                draw(st.sampled_from(steps)),
                draw(st.integers(0, 2)),
                draw(st.integers(0, 2)),
            )
            for _ in range(axes)
        ],
        list(draw(st.permutations(range(axes)))),
    )


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


def as_numpy(x: Any) -> numpy.ndarray:
    if isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return numpy.asarray(x)


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
    results = on_all_ranks(lambda rank: run(case, contexts[rank], laid[rank].array, blocking))

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
    on_all_ranks(lambda each: contexts[each].barrier())


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

    on_all_ranks(use)


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
        on_all_ranks(lambda rank, handles=handles: handles[rank].wait())
