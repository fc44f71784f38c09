# SPDX-License-Identifier: Apache-2.0
"""The training over real ranks: gradients, resume, equal losses, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the training example needs PyTorch")
pytest.importorskip("transformers", reason="the training example needs transformers")

import train_jobs as jobs
from train_ranks import run_ranks

COMMS = ["ciuic", "gloo"]
# The library casts router, RMSNorm and softmax to float32, which leaves about 5e-7 of difference;
# with a rate that lets the loss jump about (0.5), ten steps would blow it up a hundredfold.
EXACT = "--precision float64 --optimizer sgd --lr 0.1 --batch 8 --sequence 32"
SMALL = "--batch 4 --sequence 32"


@pytest.fixture(scope="module")
def alone() -> list[jobs.Arrays]:
    """The gradients of one rank that has the whole batch to itself."""
    return run_ranks("gloo", 1, jobs.gradients_of_steps, EXACT, 10)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("comm", "ranks"), [("ciuic", 1), ("ciuic", 2), ("ciuic", 4), ("gloo", 2)])
def test_gradients_do_not_depend_on_the_number_of_ranks(
    comm: str, ranks: int, alone: list[jobs.Arrays]
) -> None:
    for found in run_ranks(comm, ranks, jobs.gradients_of_steps, EXACT, 10):
        assert len(found) == len(alone) == 10
        for step, (here, there) in enumerate(zip(found, alone, strict=True)):
            assert here.keys() == there.keys()
            for name, gradient in there.items():
                largest = np.abs(gradient).max()
                assert largest > 0
                difference = np.abs(here[name] - gradient).max()
                assert difference <= 1e-5 * largest, (step, name, difference / largest)


@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("everywhere", [False, True])
def test_an_expert_without_tokens(comm: str, everywhere: bool) -> None:
    line = SMALL + " --precision float64 --optimizer sgd --lr 0.5"
    results = run_ranks(comm, 2, jobs.starved_expert, line, everywhere)
    assert results[0]["tokens"][0] == 0
    assert (results[1]["tokens"][0] == 0) is everywhere
    for result in results:
        assert np.array_equal(result["gradient"], results[0]["gradient"])
        assert bool(np.abs(result["gradient"]).max() == 0) is everywhere
        assert (result["moved"] == 0) is everywhere
    load = np.sum([result["tokens"] for result in results], axis=0)
    expected = 0.001 * np.sign(load.mean() - load)
    for result in results:
        np.testing.assert_allclose(result["bias_moved"], expected, rtol=1e-9)


@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("bucket_bytes", [1, 2048, 1 << 20])
def test_missing_gradients(comm: str, bucket_bytes: int) -> None:
    taken = [
        [[0, 1, 2], [0, 1, 2]],
        [[1], [1, 2]],  # 2: on rank 1 only; 0: on none
        [[2], [1]],
        [[0, 1, 2], [0, 1, 2]],  # what was missing once does not stay missing
        [[0], [0]],
    ]
    for found in run_ranks(comm, 2, jobs.branch_gradients, taken, bucket_bytes):
        for by_rank, gradients in zip(taken, found, strict=True):
            for index, gradient in enumerate(gradients):
                present = [index in weights for weights in by_rank]
                if not any(present):
                    assert gradient is None
                else:
                    average = (index + 1) * sum(present) / 2
                    assert np.array_equal(gradient, np.full_like(gradient, average))


def test_buckets_are_issued_in_one_order_and_during_backward() -> None:
    everything, without_the_last = run_ranks("ciuic", 2, jobs.issue_order, [[0, 1, 2], [0, 1]])
    assert [count for count, _ in everything] == [1000, 1, 3, 3]  # the last: a byte a weight
    assert [count for count, _ in without_the_last] == [1000, 1, 3, 3]
    assert [computing for _, computing in everything] == [True, True, True, False]
    # The first bucket holds weight 2, which never came here: all had to wait for the end.
    assert [computing for _, computing in without_the_last] == [False] * 4


@pytest.mark.slow
@pytest.mark.parametrize("comm", COMMS)
def test_resume_is_the_same_run_bit_for_bit(comm: str, tmp_path: Path) -> None:
    straight, first, second = (str(tmp_path / name) for name in ("straight", "split", "split"))
    whole = run_ranks(comm, 2, jobs.train_and_save, SMALL, straight, 10, False)
    begun = run_ranks(comm, 2, jobs.train_and_save, SMALL, first, 5, False)
    # Rank 1 looks for its checkpoint in an empty folder: only rank 0's disk has one.
    ended = run_ranks(comm, 2, jobs.train_and_save, SMALL, second, 10, True)
    for rank in range(2):
        assert begun[rank][0] + ended[rank][0] == whole[rank][0]
        assert whole[rank][1].keys() == ended[rank][1].keys()
        for name, value in whole[rank][1].items():
            assert np.array_equal(value, ended[rank][1][name]), name
    assert not (tmp_path / "split" / "1").exists()


@pytest.mark.slow
def test_ciuic_and_gloo_give_the_same_losses_which_fall() -> None:
    (ours, our_held_out), (same, _) = run_ranks("ciuic", 2, jobs.losses, SMALL, 12)
    (theirs, their_held_out), _ = run_ranks("gloo", 2, jobs.losses, SMALL, 12)
    assert ours == same
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
    np.testing.assert_allclose(our_held_out, their_held_out, rtol=2e-4)
    assert ours[-1] < ours[0] - 0.5
    assert our_held_out < ours[0] - 0.5


@pytest.mark.slow
def test_bfloat16_trains_like_float32_with_float32_gradients() -> None:
    (wide, _), _ = run_ranks("ciuic", 2, jobs.losses, SMALL, 6)
    (narrow, _), _ = run_ranks("ciuic", 2, jobs.losses, SMALL + " --precision bfloat16", 6)
    assert wide != narrow
    np.testing.assert_allclose(wide, narrow, rtol=0.02)
    found = run_ranks("ciuic", 2, jobs.gradients_of_steps, SMALL + " --precision bfloat16", 1)
    assert {gradient.dtype for gradient in found[0][0].values()} == {np.dtype(np.float32)}
    for name, gradient in found[0][0].items():
        assert np.array_equal(gradient, found[1][0][name])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("seed", "the ranks do not agree on the options"),
        ("weights", "the ranks do not agree on the weights"),
        ("checkpoint", "there is no checkpoint in /nonexistent"),
        ("used", "has checkpoints already: go on with --resume"),
    ],
)
def test_every_rank_sees_the_same_error(kind: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "step_00000005.pt").touch()
    for seen in run_ranks("ciuic", 2, jobs.message_of_error, kind, str(tmp_path)):
        assert message in seen


def test_rank_0_decides_when_time_is_up() -> None:
    assert run_ranks("ciuic", 2, jobs.stops, 0) == [True, True]
    assert run_ranks("ciuic", 2, jobs.stops, 1) == [False, False]


@pytest.mark.slow
def test_a_trainer_does_not_keep_gloos_group() -> None:
    # gloo's threads that live on while Python ends abort the process now and then.
    assert run_ranks("gloo", 2, jobs.goes_with_its_group) == [True, True]


@pytest.fixture(scope="module")
def losses_of_ddp() -> tuple[list[float], float]:
    return run_ranks("ciuic", 2, jobs.losses, EXACT, 3)[0]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["fsdp", "tensor", "pipeline"])
def test_however_the_model_is_shared_it_is_the_same_training(
    losses_of_ddp: tuple[list[float], float], parallel: str
) -> None:
    line = f"{EXACT} --parallel {parallel}"
    for losses, held_out in run_ranks("ciuic", 2, jobs.losses, line, 3, parallel=parallel):
        # Sums of another order differ in their last bits, and more once they are cast to float32.
        np.testing.assert_allclose(losses, losses_of_ddp[0], rtol=1e-6)
        np.testing.assert_allclose(held_out, losses_of_ddp[1], rtol=1e-6)
