# SPDX-License-Identifier: Apache-2.0
"""What the launcher makes of its ranks' output."""

import io

from ciuic.run.output import Output


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(ranks: int = 2, prefix: bool = True) -> tuple[Output, io.BytesIO, io.BytesIO, Clock]:
    out, err, clock = io.BytesIO(), io.BytesIO(), Clock()
    return Output(ranks, out, err, prefix=prefix, clock=clock), out, err, clock


REPORT = b"Traceback (most recent call last):\n  a line\nValueError: x\n"


def test_lines_are_marked_when_complete() -> None:
    output, out, err, _ = make()
    output.feed(0, "stdout", b"hel")
    assert out.getvalue() == b""
    output.feed(1, "stderr", b"oops\n")
    output.feed(0, "stdout", b"lo\nrest")
    output.feed(0, "stdout", b"")
    assert out.getvalue() == b"[0] hello\n[0] rest\n"
    assert err.getvalue() == b"[1] oops\n"


def test_marks_are_as_wide_as_the_last_rank() -> None:
    output, out, _, _ = make(11)
    output.feed(1, "stdout", b"x\n")
    output.feed(10, "stdout", b"y\n")
    assert out.getvalue() == b"[ 1] x\n[10] y\n"


def test_without_marks() -> None:
    output, out, _, _ = make(prefix=False)
    output.feed(1, "stdout", b"x\n10 %\r")
    assert out.getvalue() == b"x\n10 %\r"


def test_a_line_without_end_is_bounded() -> None:
    output, out, _, _ = make()
    output.feed(0, "stdout", b"x" * 70_000)
    assert len(out.getvalue()) > 70_000


def test_reports_are_held_and_released_in_the_order_asked() -> None:
    output, _, err, clock = make()
    output.feed(0, "stderr", b"before\n" + REPORT)
    clock.now = 1
    output.feed(1, "stderr", REPORT)
    assert err.getvalue() == b"[0] before\n"
    reports = [output.report(rank) for rank in range(2)]
    assert [report.began for report in reports if report is not None] == [0, 1]
    output.release(1)
    assert err.getvalue().startswith(b"[0] before\n[1] Traceback")
    output.release_all()
    assert err.getvalue().count(b"[0] ValueError: x\n") == 1


def test_a_report_of_a_rank_that_goes_on_is_not_held_for_long() -> None:
    output, _, err, clock = make()
    output.feed(0, "stderr", REPORT)
    clock.now = 1
    output.release_quiet()
    assert err.getvalue() == b""
    clock.now = 10
    output.release_quiet()
    assert b"[0] ValueError: x\n" in err.getvalue()


def test_victims_are_told_from_culprits() -> None:
    output, _, _, _ = make()
    output.feed(0, "stderr", REPORT)
    output.feed(1, "stderr", REPORT + b"ciuic.errors.PeerLostError: rank 0\n")
    reports = [output.report(rank) for rank in range(2)]
    assert [report.tells_of_a_victim() for report in reports if report is not None] == [False, True]


def test_a_report_without_end_is_bounded() -> None:
    output, _, err, _ = make()
    output.feed(0, "stderr", REPORT)
    assert err.getvalue() == b""
    for _ in range(2000):
        output.feed(0, "stderr", b"x" * 999 + b"\n")
    assert len(err.getvalue()) > 1_000_000
    assert output.report(0) is None
