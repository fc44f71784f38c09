# SPDX-License-Identifier: Apache-2.0
"""What is measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciuic.dtypes import CODE_OF_NAME, SIZE_OF_CODE, ReduceOp, check_reducible

OF_BACKEND = "ciuic:"  # and a backend; "ciuic" itself takes what fits
BY_MPI = OF_BACKEND + "mpi"
BY_NCCL = OF_BACKEND + "nccl"
IMPLEMENTATIONS = ("ciuic", "ciuic:native", BY_MPI, BY_NCCL, "gloo", "fake")
DEFAULT_IMPLEMENTATIONS = ("ciuic", "gloo")

# How an operation is called, the usual ways first: from a loop in C++, from one in Python, through
# torch.distributed; a step of DistributedDataParallel, and its buckets alone.
WAYS = {
    "all_reduce": ("native", "python", "torch", "torch_async"),
    "ddp": ("step", "buckets"),
}
OPERATIONS = tuple(WAYS)
DEFAULT_WAYS = {"all_reduce": ("native", "python"), "ddp": ("step", "buckets")}
DEFAULT_SIZES = {"all_reduce": None, "ddp": (40_000_000,)}  # None: a sweep

# Beside those of torch; others have all.
_WAYS_OF = {"gloo": ("python",), "fake": (), BY_NCCL: ("python",)}
OF_TORCH = ("torch", "torch_async", "step", "buckets")
BY_NAME = "ciuic by "  # and an algorithm: this library, with that instead of its choice

_SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes of "8", "64K", "1MiB".

    Raises:
        ValueError: Any other text.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes, or a number with K, M or G")
    return int(match[1]) * _UNITS[match[2].upper()]


def sweep(begin: int, end: int, factor: int) -> list[int]:
    """``begin``, ``begin * factor``, ... up to ``end``, as nccl-tests' -b, -e and -f say.

    Raises:
        ValueError: Sizes under one byte, an end before the beginning, a factor under 2.
    """
    if begin < 1 or end < begin:
        raise ValueError(f"sizes from {begin} to {end} bytes: none lies between")
    if factor < 2:
        raise ValueError(f"a factor of {factor} does not grow; 2 or more is needed")
    sizes = []
    while begin <= end:
        sizes.append(begin)
        begin *= factor
    return sizes


@dataclass(frozen=True)
class Series:
    """One implementation, called in one way."""

    impl: str
    through: str


@dataclass(frozen=True)
class Options:
    """One run of the bench.

    Args:
        operation: One of :data:`OPERATIONS`: an all-reduce, or a training step of a transformer
            under torch's DistributedDataParallel.
        ranks: Processes of each implementation.
        sizes: Bytes of a rank's buffer, or of the model's gradients; rounded down to whole
            elements, up to one.
        implementations: Of :data:`IMPLEMENTATIONS`.
        through: Of the operation's :data:`WAYS`.
        dtype, op: By name.
        algorithm: One that is measured beside the library's choice.
        module, plan: A Python file that registers it, or a plan file that has it; both are loaded
            in each process of it.
        rounds: How often each (implementation, size) is measured.
        round_ms: How long one such measurement goes on, about.
        seed: Of the order of rounds.
        timeout_s: For any answer of a process.
        mpiexec: The launcher that starts ``ciuic:mpi``; "": what is found.

    Raises:
        ValueError: What cannot be measured.
    """

    operation: str = "all_reduce"
    ranks: int = 2
    sizes: tuple[int, ...] = (8,)
    implementations: tuple[str, ...] = DEFAULT_IMPLEMENTATIONS
    through: tuple[str, ...] = DEFAULT_WAYS["all_reduce"]
    dtype: str = "float32"
    op: str = "sum"
    algorithm: str = ""
    module: str = ""
    plan: str = ""
    rounds: int = 5
    round_ms: float = 50.0
    seed: int = 0
    timeout_s: float = 120.0
    mpiexec: str = ""

    def __post_init__(self) -> None:
        _check("operation", (self.operation,), OPERATIONS)
        _check("implementation", self.implementations, IMPLEMENTATIONS)
        _check("way to call", self.through, WAYS[self.operation])
        _check("dtype", (self.dtype,), tuple(CODE_OF_NAME))
        _check("op", (self.op,), tuple(op.name.lower() for op in ReduceOp))
        check_reducible(self.dtype_code, ReduceOp[self.op.upper()])
        if self.ranks < 2:
            raise ValueError(f"{self.ranks} ranks: at least two are needed")
        if self.rounds < 1 or self.round_ms <= 0 or self.timeout_s <= 0:
            raise ValueError("rounds and times must be more than 0")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("at least one size is needed, of one byte or more")
        if not self.series():
            raise ValueError(f"no implementation named is called through {self.through[0]}")
        if self.operation == "ddp" and (self.dtype, self.op, self.algorithm) != (
            "float32",
            "sum",
            "",
        ):
            raise ValueError("ddp is measured with float32 and DDP's own averages alone")

    @property
    def dtype_code(self) -> int:
        return CODE_OF_NAME[self.dtype]

    @property
    def element_bytes(self) -> int:
        return SIZE_OF_CODE[self.dtype_code]

    def counts(self) -> list[int]:
        """Elements of each size, each once."""
        return sorted({max(1, size // self.element_bytes) for size in self.sizes})

    def series(self) -> list[Series]:
        """What has a row for each size."""
        named = (BY_NAME + self.algorithm,) if self.algorithm else ()
        return [
            Series(impl, through)
            for impl in self.implementations + named
            for through in self.through
            if _can(impl, through)
        ]


def _can(impl: str, through: str) -> bool:
    if through in OF_TORCH:
        return not impl.startswith((BY_NAME, OF_BACKEND))
    return through in _WAYS_OF.get(impl, (through,))


def _check(what: str, given: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    for name in given:
        if name not in allowed:
            raise ValueError(f"{what} {name!r} is unknown; there are {', '.join(allowed)}")
    if not given or len(set(given)) != len(given):
        raise ValueError(f"{what}: each once, and at least one of {', '.join(allowed)}")
