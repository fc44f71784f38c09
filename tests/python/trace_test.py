# SPDX-License-Identifier: Apache-2.0
"""``ciuic trace``: what it says of recordings that are made up here.

Exports and garbage: trace_exports_test.py. Real processes: tests/multiprocess/recorders_test.py.
"""

from dataclasses import replace
from typing import Any

import pytest
from ciuic.trace import words
from ciuic.trace.chrome import chrome_trace
from ciuic.trace.diagnosis import diagnose
from ciuic.trace.job import Job, merge
from ciuic.trace.lateness import lateness
from ciuic.trace.recording import Operation, Recording
from ciuic.trace.report import sentences
from recordings import MS, NOW, S, group_of, job_of, operation, recording


def texts(job: Job, *kinds: str) -> list[str]:
    return [f.text for f in diagnose(job) if not kinds or f.kind in kinds]


# ---- diagnosis ----


def test_the_rank_that_is_behind() -> None:
    ended = [operation(15), operation(16, "broadcast", root=0, took=600 * MS, at=87 * S)]
    waiting = [*ended, operation(17, at=NOW - 12_300 * MS, took=None)]
    job = job_of(waiting, waiting, ended, waiting)
    assert texts(job) == [
        "rank 2 has not called operation 17 (all_reduce, float32, 1048576 elements, sum), which "
        "ranks 0, 1 and 3 have been in for 12.3 s; its last was 16 (broadcast, float32, 1048576 "
        "elements, root 0), which ended 12.4 s ago"
    ]
    (finding,) = diagnose(job)
    assert (finding.kind, finding.ranks, finding.sequence) == ("behind", (2,), 17)
    assert sentences(job) == texts(job)


def test_a_rank_that_called_nothing_yet() -> None:
    job = job_of([operation(0, at=90 * S, took=None)], [])
    assert texts(job) == [
        "rank 1 has not called operation 0 (all_reduce, float32, 1048576 elements, sum), which "
        "rank 0 has been in for 10.0 s; it has called none since it joined, 95.0 s ago"
    ]


def test_a_rank_that_is_still_in_an_earlier_operation() -> None:
    """Operations run concurrently: it may be in one that others have done their part in."""
    first = operation(3, "broadcast", at=80 * S, took=None)
    job = job_of(
        [replace(first, ended_ns=81 * S, has_ended=True), operation(4, at=95 * S, took=None)],
        [first],
    )
    said = texts(job)
    assert said[0].startswith(
        "operation 3 (broadcast, float32, 1048576 elements) is open on rank 1"
    )
    assert "for 20.0 s, and has ended on rank 0" in said[0]


def test_ranks_that_are_behind_together_are_told_of_together() -> None:
    ended = [operation(0, at=80 * S)]
    job = job_of([*ended, operation(1, at=90 * S, took=None)], *[ended] * 9, [])
    assert texts(job) == [
        "ranks 1 to 9 have not called operation 1 (all_reduce, float32, 1048576 elements, sum), "
        "which rank 0 has been in for 10.0 s; their last was 0 (all_reduce, float32, 1048576 "
        "elements, sum), which ended at most 20.0 s ago",
        "rank 10 has not called operation 1 (all_reduce, float32, 1048576 elements, sum), which "
        "rank 0 has been in for 10.0 s; it has called none since it joined, 95.0 s ago",
    ]


def test_calls_that_differ() -> None:
    same = [operation(0), operation(1, took=None)]
    other = [operation(0), operation(1, "broadcast", root=1, count=10, took=None)]
    job = job_of(same, same, other, same)
    assert texts(job, "mismatch") == [
        "operation 1: rank 2 called broadcast(float32, 10 elements, root 1), the others "
        "all_reduce(float32, 1048576 elements, sum)"
    ]
    # Nobody is behind, and all of it follows from the mismatch.
    assert [f.kind for f in diagnose(job)] == ["mismatch", "stuck"]


@pytest.mark.parametrize(
    "change", [{"dtype": "float64"}, {"count": 3}, {"op": "avg"}, {"root": 2}, {"name": "barrier"}]
)
def test_every_difference_between_calls_is_seen(change: dict[str, Any]) -> None:
    base = operation(4)
    job = job_of([base], [base], [replace(base, **change)])
    (text,) = texts(job, "mismatch")
    assert text.startswith("operation 4: rank 2 called ")


@pytest.mark.parametrize("name", ["all_to_all_v", "gather_v", "scatter_v"])
def test_counts_that_may_differ(name: str) -> None:
    calls = [[operation(0, name, count=count)] for count in (4, 0, 7)]
    assert texts(job_of(*calls), "mismatch") == []
    job = job_of(*calls[:2], [operation(0, name, count=7, dtype="int64")])
    (text,) = texts(job, "mismatch")
    assert text == f"operation 0: rank 2 called {name}(int64), the others {name}(float32)"


def test_the_same_call_carried_out_differently() -> None:
    job = job_of([operation(2)], [operation(2, fingerprint=8)])
    (text,) = texts(job, "mismatch")
    assert "ranks 0 and 1 made the same call, but chose differently" in text


def test_only_the_first_difference_is_told() -> None:
    job = job_of(
        [operation(0), operation(1), operation(2)],
        [operation(0), operation(1, "barrier"), operation(2, "barrier")],
    )
    assert len(texts(job, "mismatch")) == 1


@pytest.mark.parametrize(
    ("code", "words_"), [(137, "was killed by SIGKILL"), (1, "ended with exit code 1")]
)
def test_a_rank_that_died(code: int, words_: str) -> None:
    alive = [operation(0), operation(1, at=97 * S, took=None)]
    for last, where in (
        (alive, "in operation 1 (all_reduce"),
        (alive[:1], "after operation 0 (all_reduce"),
        ([], "before it called any operation"),
    ):
        job = merge([recording(0, 2, alive), recording(1, 2, last, exit_code=code, state="")])
        first = diagnose(job)[0]
        assert first.kind == ("killed" if code > 128 else "died")
        assert f"rank 1 (process 4712 on node7) {words_}, {where}" in first.text
        assert first.ranks == (1,)


def test_a_rank_that_ended_after_an_error_is_no_cause() -> None:
    failed = group_of(1, 2, failed_ns=60 * S, status="peer_lost", text="rank 0 is gone")
    job = merge(
        [
            recording(0, 2, [operation(0)], exit_code=139, state=""),
            recording(1, 2, [operation(0)], groups=[failed], exit_code=1, state=""),
        ]
    )
    assert [f.kind for f in diagnose(job)] == ["killed", "ended", "failed"]


def test_a_process_that_is_gone() -> None:
    running = [operation(0, took=None)]
    job = merge([recording(0, 2, running), recording(1, 2, running, state="X")])
    assert texts(job, "died") == [
        "rank 1 (process 4712 on node7) has ended, in operation 0 (all_reduce, float32, 1048576 "
        "elements, sum)"
    ]


def test_ranks_that_ended_well_are_not_told_of() -> None:
    closed = group_of(0, 1, closed_ns=90 * S)
    job = merge([recording(0, 1, [operation(0)], groups=[closed], exit_code=0)])
    assert diagnose(job) == []
    assert sentences(job) == [
        'group "default": all operations that rank 0 called have ended, the last was operation 0'
    ]


def test_a_rank_that_is_stopped() -> None:
    ops = [operation(0)]
    job = merge([recording(0, 2, [*ops, operation(1, took=None)]), recording(1, 2, ops, state="T")])
    kinds = [finding.kind for finding in diagnose(job)]
    assert kinds == ["stopped", "behind"]
    assert "rank 1 (process 4712 on node7) is stopped (SIGSTOP" in texts(job)[0]


def test_a_rank_that_closed_its_communicator() -> None:
    closed = group_of(1, 2, closed_ns=50 * S)
    job = merge(
        [
            recording(0, 2, [operation(0), operation(1, took=None)]),
            recording(1, 2, [operation(0)], groups=[closed]),
        ]
    )
    (text,) = texts(job, "left")
    assert text.startswith(
        "rank 1 closed its communicator and did not call operation 1 (all_reduce"
    )


def test_a_group_that_failed() -> None:
    failed = {"failed_ns": 60 * S, "status": "timeout", "text": "rank 1 is late"}
    cut = operation(1, at=40 * S, took=20 * S, status="timeout")
    job = merge(
        [
            recording(0, 2, [operation(0), cut], groups=[group_of(0, 2, **failed)]),
            recording(1, 2, [operation(0)]),
        ]
    )
    assert [f.kind for f in diagnose(job)] == ["behind", "failed"]
    behind, said = texts(job)
    assert said == 'group "default" failed on rank 0 with timeout: rank 1 is late'
    assert behind.startswith("rank 1 had not called operation 1")
    assert "which rank 0 was in for 20.0 s until the group ended" in behind


def test_operations_that_all_are_in() -> None:
    late = operation(3, at=97 * S, took=None)
    queued = replace(operation(3, at=90 * S, took=None), started_ns=None)
    (text,) = texts(job_of([queued], [late]))
    assert text == (
        "all ranks have called operation 3 (all_reduce, float32, 1048576 elements, sum), 10.0 s "
        "before they were last seen; the last to call it was rank 1, 7.0 s after the first; on "
        "rank 0 it waited its turn behind earlier operations"
    )


def message(name: str, peer: int, tag: int, took: int | None, **more: Any) -> Operation:
    fields = {"root": peer, "fingerprint": tag & 0xFFFFFFFF, "is_message": True, "count": 4}
    return operation(0, name, took=took, **{**fields, **more})


def test_a_rank_that_waits_for_a_message() -> None:
    receives = message("recv", 0, 3, None, at=88 * S)
    sends = message("send", 1, 4, None, at=89 * S)
    job = merge(
        [
            recording(0, 3, [operation(0)], messages=(sends,)),
            recording(1, 3, [operation(0)], messages=(receives,)),
            recording(2, 3, [operation(0)], messages=(message("recv", -1, -1, None, at=90 * S),)),
        ]
    )
    found = texts(job, "message")
    assert found == [
        "rank 0 has been in send(float32, 4 elements, to rank 1, tag 4) for 11.0 s; rank 1 is in "
        "recv(float32, 4 elements, from rank 0, tag 3)",
        "rank 1 has been in recv(float32, 4 elements, from rank 0, tag 3) for 12.0 s; rank 0 is in "
        "send(float32, 4 elements, to rank 1, tag 4)",
        "rank 2 has been in recv(float32, 4 elements, from any rank, any tag) for 10.0 s",
    ]


def test_messages_are_no_operations() -> None:
    ended = message("send", 1, 4, MS)
    late = message("recv", 0, 4, None, at=99 * S)
    job = merge(
        [
            recording(0, 2, [operation(0)], messages=(ended,)),
            recording(1, 2, [operation(0)], messages=(late,)),
        ]
    )
    assert texts(job, "mismatch", "behind", "stuck") == []
    assert (
        "rank 0 last called send(float32, 4 elements, to rank 1, tag 4), which has ended"
        in (texts(job, "message")[0])
    )
    slices = [e for e in chrome_trace(job)["traceEvents"] if e.get("cat") == "message"]
    assert {e["name"] for e in slices} == {"send", "recv"}


def test_several_groups_are_told_apart() -> None:
    def of(rank: int, open_in_second: bool) -> Recording:
        second = group_of(rank, 2, number=2, id=6, name="tensor")
        operations = [operation(0), operation(0, "all_gather", group=2)]
        if open_in_second:
            operations.append(operation(1, "barrier", group=2, took=None))
        return recording(rank, 2, operations, groups=[group_of(rank, 2), second])

    job = merge([of(0, True), of(1, False)])
    assert len(job.groups) == 2
    (text,) = sentences(job)
    assert text.startswith('group "tensor": rank 1 has not called operation 1 (barrier)')


def test_epochs_and_jobs_are_different_groups() -> None:
    first = recording(0, 2, [operation(0)])
    second = recording(1, 2, [operation(0)], groups=[group_of(1, 2, epoch=2, job=10)])
    job = merge([first, second])
    assert [group.missing for group in job.groups] == [[1], [0]]
    assert 'group "default", epoch 2 has 2 ranks; rank 0 was not recorded' in texts(job, "missing")


def test_groups_of_one_name_are_told_apart() -> None:
    """Such as a group, and what its survivors made."""
    failed = {"failed_ns": 60 * S, "status": "peer_lost", "text": "rank 1 is gone"}

    def of(rank: int, number: int) -> Recording:
        later = group_of(number, 2, number=2, job=10, joined_ns=61 * S)
        return recording(rank, 3, [], groups=[group_of(rank, 3, **failed), later])

    job = merge([of(0, 0), of(2, 1)])
    assert [group.title for group in job.groups] == [
        'group "default" (no. 1, 3 ranks)',
        'group "default" (no. 2, 2 ranks)',
    ]
    (text,) = texts(job, "failed")
    assert text.startswith('group "default" (no. 1, 3 ranks) failed on ranks 0 and 2')


def test_missing_ranks_and_processes_without_a_group() -> None:
    job = merge([recording(0, 8, [operation(0)]), recording(1, 8, [], groups=[])])
    assert texts(job, "no_group") == [
        "rank 1 (process 4712 on node7) has joined no group: it is still joining its first one, or "
        "could not"
    ]
    (missing,) = texts(job, "missing")
    assert missing == 'group "default" has 8 ranks; ranks 1 to 7 were not recorded'


def test_the_last_of_two_dumps_of_a_process_counts() -> None:
    early = recording(0, 1, [operation(0, took=None)], dumped_ns=50 * S)
    late = recording(0, 1, [operation(0)])
    assert merge([late, early]).recordings == [late]


def test_clocks_that_contradict_what_must_have_come_first() -> None:
    def of(rank: int, host: str, ahead_ns: int) -> Recording:
        ops = [operation(n, at=(20 + n) * S - ahead_ns + rank * MS, took=2 * MS) for n in range(3)]
        offset = (1_700_000_000 + 5 * rank) * S
        return recording(rank, 2, ops, boot_id=host, host=host, realtime_offset_ns=offset)

    # node1's CLOCK_REALTIME says five seconds more than is true.
    job = merge([of(0, "node0", 0), of(1, "node1", 0)])
    assert abs(job.corrections_ns["node1"] + 5 * S) < 3 * MS
    (text,) = texts(job, "clocks")
    assert text.startswith("the clock of node1 is 5.0 s ahead of that of node0")
    (row,) = lateness(job)
    assert row.last_rank in (0, 1)
    assert row.wait_us < 3000


def test_clocks_that_agree_well_enough_are_left_alone() -> None:
    def of(rank: int) -> Recording:
        ops = [operation(n, at=(20 + n) * S + rank * 50_000, took=MS) for n in range(3)]
        return recording(rank, 2, ops, boot_id=f"b{rank}")

    assert merge([of(0), of(1)]).corrections_ns == {}


def test_words() -> None:
    assert words.ranks([3]) == "rank 3"
    assert words.ranks([2, 0]) == "ranks 0 and 2"
    assert words.ranks([0, 1, 2]) == "ranks 0, 1 and 2"
    assert words.ranks([0, 1, 2, 3]) == "ranks 0 to 3"
    assert words.ranks([0, 2, 4, 5, 6, 7]) == "ranks 0, 2 and 4 to 7"
    assert [words.seconds(n) for n in (-5, 0, 999, 999_400, 999_600, 1_500_000, 2 * S)] == [
        "0 us",
        "0 us",
        "1 us",
        "999 us",
        "1.0 ms",
        "1.5 ms",
        "2.0 s",
    ]
    assert words.exit_of(139) == "was killed by SIGSEGV"


# ---- lateness ----


def test_who_arrives_last() -> None:
    def of(rank: int) -> list[Operation]:
        delay = {0: 0, 1: 100_000, 2: 2_000_000}[rank]
        return [operation(n, at=(10 + n) * S + delay, took=5 * MS - delay) for n in range(20)]

    (row,) = lateness(job_of(of(0), of(1), of(2)))
    assert row.operations == 18  # without the first
    assert row.last_rank == 2
    assert row.last_share == 1
    assert row.wait_us == pytest.approx(2000)
    assert row.worst_us == pytest.approx(2000)
    assert row.duration_us == pytest.approx(3000)
    assert row.late_by_rank_us == pytest.approx((0, 100, 2000))


def test_lateness_needs_all_ranks() -> None:
    assert lateness(merge([recording(0, 2, [operation(0)])])) == []
    assert lateness(job_of([operation(0)])) == []
