# SPDX-License-Identifier: Apache-2.0
"""Arrays on GPUs, on the fakes of tests/fakes: by NCCL, and by the native backend, which stages
them through the host. The same programs that the native backend runs on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

QUICK = ["operations.py", "messages.py", "calls_together.py", "objects.py"]
ALL = [*QUICK, "dtypes.py", "exchanges.py", "groups_of_groups.py", "parameters.py"]

OWN_GPU = -1  # each rank has that of its number


@pytest.fixture
def suite(ciuic_run, fakes: dict[str, str]):
    """Runs programs on a device, and checks that all ranks have come to their end."""

    def run(ranks: int, backend: str, device: int, *programs: str, **settings: str):
        given = ("--device", str(device), backend, *programs)
        settings = {"CIUIC_BACKEND": backend, **fakes, **settings}
        return ciuic_run(ranks, "suite.py", *given, **settings)

    return run


@pytest.fixture
def good_suite(suite) -> Callable[..., None]:
    def run(ranks: int, *arguments, **settings: str) -> None:
        result = suite(ranks, *arguments, **settings)
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stdout.count("suite is good") == ranks, result.stdout + result.stderr

    return run


@pytest.mark.parametrize(("backend", "device"), [("native", 0), ("nccl", OWN_GPU)])
def test_all_operations(good_suite, backend: str, device: int) -> None:
    """Two ranks share a GPU, or have one each."""
    good_suite(2, backend, device, *ALL)


@pytest.mark.parametrize(("backend", "device"), [("native", OWN_GPU), ("nccl", OWN_GPU)])
def test_four_ranks(good_suite, backend: str, device: int) -> None:
    good_suite(4, backend, device, *QUICK)


def test_pieces(good_suite) -> None:
    """Staging memory of 256 KiB: large arrays pass through it in many pieces, of 64 KiB."""
    good_suite(3, "native", 0, *QUICK, CIUIC_BUFFER_SIZE="1M")


def test_calls_are_compared_where_that_is_asked_for(good_suite) -> None:
    good_suite(2, "nccl", OWN_GPU, "dtypes.py", "exchanges.py", CIUIC_CHECK="1")


def test_auto_takes_nccl_for_gpus_and_native_for_the_cpu(good_suite) -> None:
    good_suite(2, "nccl", OWN_GPU, *QUICK, CIUIC_BACKEND="auto")


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_gather_by_whatever_the_hardware_has(good_suite, ranks: int) -> None:
    """The example, whose tensors are on GPUs, one a rank."""
    example = "../../../examples/five_ways/3_backend.py"
    good_suite(ranks, "nccl", OWN_GPU, example, CIUIC_BACKEND="auto", FAKE_CUDA_DEVICES=str(ranks))


# Each planted fault, and the operations that it breaks.
@pytest.mark.parametrize("forgotten", ["cudaStreamWaitEvent", "cudaEventRecord"])
@pytest.mark.parametrize(("backend", "device"), [("native", 0), ("nccl", OWN_GPU)])
def test_a_synchronisation_that_is_left_out_is_seen(
    suite, backend: str, device: int, forgotten: str
) -> None:
    """The suite fails where the library forgets it: the fake really runs later."""
    slow = {"KERNEL_US": "20000", "FAKE_CUDA_DELAY_US": "5000"}
    result = suite(2, backend, device, "operations.py", FAKE_CUDA_DROP=forgotten, **slow)
    assert result.returncode != 0
    assert "AssertionError" in result.stdout + result.stderr, result.stdout + result.stderr


def test_what_is_of_gpus_alone(ciuic_run, fakes: dict[str, str]) -> None:
    """DLPack, streams, what describe() says, how the backend is chosen, and refusals."""
    result = ciuic_run(2, "cuda_alone.py", **fakes)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2, result.stdout + result.stderr


def test_who_is_late_is_found_in_the_recordings(ciuic_run, fakes: dict[str, str]) -> None:
    """Though the host has returned from the call that the device waits in."""
    result = ciuic_run(2, "cuda_traced.py", **fakes)
    assert result.returncode == 1, result.stdout + result.stderr
    said = (
        r"rank 1 (had not called|closed its communicator and did not call) operation 2 "
        r"\(all_reduce, float32, 1000 elements, sum\), which rank 0 was in for [\d.]+ s"
    )
    assert re.search(said, result.stderr), result.stderr


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("CIUIC_CUDA_LIBRARY", ["no CUDA runtime can be used", "pip install nvidia-cuda-runtime"]),
        ("CIUIC_NCCL_LIBRARY", ["no NCCL", "pip install nvidia-nccl"]),
    ],
)
def test_a_library_that_is_missing(
    ciuic_run, fakes: dict[str, str], missing: str, words: list[str]
) -> None:
    """Named on every rank, with what was tried and how to install it, at the join."""
    settings = {**fakes, missing: "/nonexistent/lib.so"}
    result = ciuic_run(2, "cuda_missing.py", **settings)
    assert result.returncode == 0, result.stdout + result.stderr
    for word in ["/nonexistent/lib.so", *words]:
        assert result.stdout.count(word) >= 2, result.stdout
