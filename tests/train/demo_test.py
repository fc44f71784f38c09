# SPDX-License-Identifier: Apache-2.0
"""What the demonstration says of two results, and what it complains of."""

from __future__ import annotations

from typing import Any

import demo


def run(**changes: Any) -> dict[str, Any]:
    usual = {
        "loss_first": 5.5,
        "loss_last": 2.5,
        "val_loss": 2.4,
        "tokens_per_s": 8000.0,
        "comm_share": 0.05,
        "backend": "ciuic",
        "ranks": 2,
        "steps": 200,
    }
    return usual | changes


def test_two_alike_trainings_are_printed_side_by_side() -> None:
    runs = [run(), run(backend="gloo", tokens_per_s=7000.0, val_loss=2.41)]
    assert demo.complaints(runs) == []
    lines = demo.table(runs).splitlines()
    assert len(lines) == 3
    for line, words in zip(lines[1:], (("ciuic", "8,000"), ("gloo", "7,000")), strict=True):
        assert all(word in line for word in (*words, "5.500 -> 2.500", "5.0%"))
    assert lines[1].index("5.500") == lines[2].index("5.500")


def test_a_loss_that_rises_or_is_no_number_is_complained_of() -> None:
    for bad in (6.0, float("nan")):
        assert (
            "loss over gloo did not fall"
            in demo.complaints([run(), run(backend="gloo", loss_last=bad)])[0]
        )
        assert demo.complaints([run(val_loss=bad), run(backend="gloo")])


def test_trainings_that_differ_are_complained_of() -> None:
    other = run(backend="gloo", loss_first=5.6)
    assert demo.complaints([run(), other]) == ["the two do not start from the same loss"]
    apart = run(backend="gloo", val_loss=3.0)
    assert "differ by 0.600" in demo.complaints([run(), apart])[0]
    # Stopped by the time, after fewer steps: then the losses are no longer those of one training.
    assert demo.complaints([run(), run(backend="gloo", val_loss=3.0, steps=90)]) == []
