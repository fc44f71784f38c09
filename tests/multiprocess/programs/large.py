# SPDX-License-Identifier: Apache-2.0
"""A rank that moves and reduces ``elements`` bytes each, and looks at every one of them."""

import sys

import ciuic
import numpy as np

PIECE = 1 << 24


def pattern(begin: int, end: int, rank: int) -> np.ndarray:
    """Bytes that tell their place: no two blocks of a power of two are alike."""
    return ((np.arange(begin, end, dtype=np.int64) * 2654435761 >> 16) + rank).astype(np.uint8)


def fill(array: np.ndarray, rank: int) -> None:
    for begin in range(0, array.size, PIECE):
        end = min(begin + PIECE, array.size)
        array[begin:end] = pattern(begin, end, rank)


def check(array: np.ndarray, ranks: list[int]) -> None:
    """It holds the wrapping sum of what the ranks gave."""
    for begin in range(0, array.size, PIECE):
        end = min(begin + PIECE, array.size)
        expected = sum(pattern(begin, end, rank) for rank in ranks)
        assert (array[begin:end] == expected).all(), f"wrong in bytes {begin} to {end}"


def main() -> None:
    elements = int(sys.argv[1])
    context = ciuic.CiuicContext()
    array = np.empty(elements, np.uint8)
    fill(array, context.rank)
    ciuic.all_reduce(array, context=context)
    check(array, list(range(context.world_size)))
    fill(array, context.rank)
    context.broadcast(array, src=context.world_size - 1)
    check(array, [context.world_size - 1])
    fill(array, context.rank)
    if context.rank == 0:
        context.send(array, dst=1)
    if context.rank == 1:
        assert context.recv(array, src=0) == 0
        check(array, [0])
    context.barrier()
    print(f"moved {elements}")


if __name__ == "__main__":
    main()
