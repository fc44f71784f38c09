# SPDX-License-Identifier: Apache-2.0
"""What copies back when an operation ends: arrays of one call that share memory, of which each
element is reduced once, and handles that several threads wait for. The ranks are threads.
"""

import threading
from collections.abc import Iterator
from typing import Any

import ciuic
import numpy
import pytest
from ciuic import CiuicContext, buckets
from rank_threads import joined_contexts, on_all_ranks, outcomes

RANKS = 2


@pytest.fixture
def contexts(tmp_path: Any) -> Iterator[list[CiuicContext]]:
    yield from joined_contexts(RANKS, tmp_path)


@pytest.mark.parametrize("elements", [1000, 5000])
def test_two_views_of_one_array_are_reduced_once(
    contexts: list[CiuicContext], elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 8192)  # the larger array is a bucket by itself

    def call(rank: int) -> set[float]:
        array = numpy.full(elements, rank + 1, numpy.float32)
        ciuic.all_reduce([array, array[:], array.reshape(2, -1)], context=contexts[rank])
        return set(array.tolist())

    assert on_all_ranks(RANKS, call) == [{3.0}] * RANKS


def test_arrays_that_overlap_in_part(
    contexts: list[CiuicContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 8192)

    def reduce(rank: int, elements: int) -> Any:
        array = numpy.full(elements, rank + 1, numpy.float32)
        part = elements // 3
        ciuic.all_reduce([array[: 2 * part], array[part:]], context=contexts[rank])
        return set(array.tolist())

    # What travels as one is reduced once.
    assert on_all_ranks(RANKS, lambda rank: reduce(rank, 900)) == [{3.0}] * RANKS
    for error in outcomes(RANKS, lambda rank: reduce(rank, 9000)):
        assert isinstance(error, ValueError), error
        assert "overlap in part" in str(error)
    # Neighbours do not overlap, and nothing was sent.
    neighbours = [numpy.ones(9000, numpy.float32) for _ in range(RANKS)]
    assert (
        on_all_ranks(
            RANKS,
            lambda rank: ciuic.all_reduce(
                [neighbours[rank][:4000], neighbours[rank][4000:]], context=contexts[rank]
            )[1][0],
        )
        == [RANKS] * RANKS
    )


def test_no_thread_returns_from_wait_before_the_results_are_in_place() -> None:
    finishing = threading.Event()
    may_finish = threading.Event()
    place: list[int] = []

    def finish() -> None:
        finishing.set()
        assert may_finish.wait(60)
        place.append(1)

    handle = ciuic.Handle((), place, finish)
    seen: list[list[int]] = []

    def wait() -> None:
        seen.append(list(handle.wait()))

    first = threading.Thread(target=wait)
    first.start()
    assert finishing.wait(60)
    second = threading.Thread(target=wait)
    second.start()
    second.join(0.2)  # it stays; one that went through would have seen nothing
    may_finish.set()
    first.join()
    second.join()
    assert seen == [[1], [1]]
    assert place == [1], "finished twice"
