# SPDX-License-Identifier: Apache-2.0
"""``ciuic trace``: exports, and what torch makes of them; damaged dumps; the command."""

import itertools
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ciuic
import pytest
from ciuic import _native
from ciuic.cli.app import app
from ciuic.trace.chrome import chrome_trace
from ciuic.trace.job import merge, runs
from ciuic.trace.recording import Recording, dumps_of_process, of_paths, parse, write_dump
from ciuic.trace.report import as_json, sentences
from ciuic.trace.torch_format import write_torch_dumps
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import MS, NOW, S, group_of, job_of, operation, recording
from typer.testing import CliRunner

# ---- exports ----


def test_chrome() -> None:
    overlapping = [
        operation(0, at=10 * S, took=3 * S),
        operation(1, "all_gather", at=11 * S, took=4 * S),
        operation(2, at=14 * S, took=None),
    ]
    job = job_of(overlapping, [replace(o, called_ns=o.called_ns + MS) for o in overlapping[:2]])
    trace = json.loads(json.dumps(chrome_trace(job)))
    events = trace["traceEvents"]
    assert {"pid": 0, "name": "rank 0 (process 4711 on node7)"} in [
        {"pid": e["pid"], **e["args"]} for e in events if e["name"] == "process_name"
    ]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 5
    for event in slices:
        assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    # Within a track nothing overlaps, and every track has a name.
    for track in {(e["pid"], e["tid"]) for e in slices}:
        own = sorted((e for e in slices if (e["pid"], e["tid"]) == track), key=lambda e: e["ts"])
        for before, after in itertools.pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"]
        names = [e for e in events if e["name"] == "thread_name" and (e["pid"], e["tid"]) == track]
        assert len(names) == 1
    (running,) = [e for e in slices if e["args"]["status"] == "open"]
    assert running["dur"] == pytest.approx((NOW - 14 * S) / 1e3)
    # Arrows: from the last to call, to an end elsewhere, each begun once and ended once.
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(begins) == 2
    assert all(e["pid"] == 1 for e in begins.values())
    assert all(e["pid"] == 0 and e["bp"] == "e" for e in ends.values())
    assert all(begins[i]["ts"] <= ends[i]["ts"] for i in begins)


def torch_says(directory: Path, *options: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(directory)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_torch_finds_a_straggler(tmp_path: Path) -> None:
    both = [operation(0), operation(1, "all_gather", count=10), operation(2, "barrier", count=0)]
    job = job_of([*both, operation(3, took=None)], both, [*both, operation(3, took=None)])
    write_torch_dumps(job, tmp_path)
    said = torch_says(tmp_path)
    assert "Not all ranks joining collective, sequence number: 3" in said
    assert "missing ranks: {1}" in said
    assert "collective: gloo:all_reduce" in said


@pytest.mark.slow
def test_torch_finds_a_mismatch(tmp_path: Path) -> None:
    same = [operation(0), operation(1)]
    job = job_of(same, same, [operation(0), operation(1, "broadcast", root=0)])
    write_torch_dumps(job, tmp_path)
    said = torch_says(tmp_path)
    assert "Collective sequence number: 1 has errors" in said
    # It takes the first file that the directory lists for right, and names the others.
    assert re.search(r"Culprit rank [012]; Error type: COLLECTIVE_TYPE_MISMATCH", said), said
    assert "'broadcast'" in said
    assert "'all_reduce'" in said


@pytest.mark.slow
def test_torch_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    """Two groups, and a rank whose ring has lost the oldest operations."""

    def of(rank: int) -> Recording:
        half = group_of(rank % 2, 2, number=2, id=6 + rank // 2, name=f"half {rank // 2}")
        operations = [operation(n) for n in range(2 * (rank == 3), 5)]
        operations += [operation(n, "broadcast", group=2, root=0) for n in range(3)]
        return recording(rank, 4, operations, groups=[group_of(rank, 4), half])

    job = merge(of(rank) for rank in range(4))
    paths = write_torch_dumps(job, tmp_path / "dumps")
    assert [path.name for path in paths] == ["ciuic_0", "ciuic_1", "ciuic_2", "ciuic_3"]
    said = torch_says(tmp_path / "dumps", "-o", str(tmp_path / "db"))
    assert "error" not in said.lower()
    assert "Not all ranks" not in said
    with open(tmp_path / "db", "rb") as file:
        _, database = pickle.load(file)
    assert len(database.groups) == 3
    assert len(database.collectives) == 3 + 2 * 3
    assert all(collective.pass_check for collective in database.collectives)
    dump = pickle.loads(paths[2].read_bytes())
    ranks = {config["desc"]: config["ranks"] for config in dump["pg_config"].values()}
    assert ranks == {"default": "[0, 1, 2, 3]", "half 1": "[2, 3]"}


def test_torch_directory_must_be_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ciuic.InvalidArgumentError, match="not empty"):
        write_torch_dumps(job_of([operation(0)]), tmp_path)


def test_json() -> None:
    facts = json.loads(json.dumps(as_json(job_of([operation(0), operation(1)], [operation(0)]))))
    assert facts["recordings"][0]["pid"] == 4711
    assert facts["groups"] == [
        {
            "name": "default",
            "epoch": 1,
            "size": 2,
            "ranks": [0, 1],
            "last_calls": {"0": 1, "1": 0},
        }
    ]
    assert facts["findings"] == []
    assert facts["lateness"][0]["operations"] == 1


# ---- this process's own, and garbage ----


@pytest.fixture(scope="module")
def own_dump(environment: Callable[..., dict[str, str]]) -> bytes:
    import numpy

    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment():
            patch.delenv(name)
        with ciuic.CiuicContext(world_size=1, rank=0) as context:
            for _ in range(3):
                context.all_reduce(numpy.ones(4, dtype=numpy.float32))
            context.barrier()
            (dump,) = dumps_of_process(os.getpid())
    return dump


def test_a_process_reads_itself(own_dump: bytes) -> None:
    recorded = parse(own_dump, "own")
    assert recorded.pid == os.getpid()
    assert recorded.dumped_ns is not None
    last = [o for o in recorded.operations if o.group == recorded.groups[-1].number]
    assert [o.name for o in last] == ["all_reduce"] * 3 + ["barrier"]
    assert last[0].call() == "all_reduce(float32, 4 elements, sum)"
    assert last[0].bytes == 16
    assert last[0].algorithm
    times = [t for o in last for t in (o.called_ns, o.started_ns, o.ended_ns)]
    assert None not in times
    assert times == sorted(times)


def look_at_all_of_it(recorded: Recording) -> None:
    other = replace(recorded, pid=recorded.pid + 1, boot_id="another")
    job = merge([recorded, other])
    json.dumps(as_json(job), allow_nan=False)
    json.dumps(chrome_trace(job), allow_nan=False)
    for text in sentences(job):
        assert text.isprintable(), text


@settings(deadline=None)
@given(st.binary(max_size=4096))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match=r"^x: this is no flight recorder"):
        parse(data, "x")
    assert _native.trace_dump_name(data).startswith("unreadable")
    assert len(_native.stamp_trace(data, True, "R", None)) == len(data)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_dumps_do_no_harm(own_dump: bytes, data: st.DataObject) -> None:
    damaged = bytearray(own_dump)
    slots_end = 2048 + 64 * 1024
    for _ in range(data.draw(st.integers(1, 40))):
        end = data.draw(st.sampled_from([256, 2048, 2048 + 1024, slots_end, len(damaged)]))
        damaged[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        recorded = parse(bytes(damaged), "x")
    except ciuic.InvalidArgumentError:
        return
    look_at_all_of_it(recorded)


# ---- the command ----


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["trace", *arguments])


DUMPED = """
import os, sys
import ciuic, numpy
from ciuic.trace.recording import dumps_of_process
with ciuic.CiuicContext(world_size=1, rank=0) as context:
    for _ in range(3):
        context.all_reduce(numpy.ones(4, dtype=numpy.float32))
    context.barrier()
    (dump,) = dumps_of_process(os.getpid())
sys.stdout.buffer.write(dump)
"""


def test_command_on_files(tmp_path: Path) -> None:
    # Of another process, since this one may have groups of other tests, of several ranks.
    done = subprocess.run([sys.executable, "-c", DUMPED], capture_output=True, check=True)
    recorded = parse(done.stdout, "x")
    path = write_dump(tmp_path / "dumps", done.stdout)
    host = re.escape(recorded.host)
    assert re.fullmatch(rf"rank\d+\.{host}\.{recorded.pid}\.ciuic-trace", path.name)
    for place in (path, path.parent):
        told = run(str(place), "--chrome", str(tmp_path / "c.json"), "--torch", str(tmp_path / "t"))
        assert told.exit_code == 0, told.output
        assert "have ended, the last was operation 3" in told.output
    assert json.loads((tmp_path / "c.json").read_text())["traceEvents"]
    assert (tmp_path / "t" / "ciuic_0").exists()
    facts = json.loads(run(str(path), "--json").output)
    assert facts["recordings"][0]["pid"] == recorded.pid
    assert facts["unread"] == []
    assert of_paths([path.parent])[0].source == str(path)


def test_command_on_a_process(own_dump: bytes, tmp_path: Path) -> None:
    done = run("--pid", str(os.getpid()), "--save", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert of_paths([tmp_path])[0].pid == os.getpid()
    # What is not there is said; what is there is still read.
    facts = json.loads(run("--pid", str(os.getpid()), "4194305", "--json").stdout)
    assert facts["unread"] == ["there is no process 4194305"]
    assert len(facts["recordings"]) == 1


def test_dumps_of_earlier_runs_are_left_out() -> None:
    def of(rank: int, second: int) -> Recording:
        joined = group_of(rank, 2, joined_ns=second * S, job=second)
        return recording(rank, 2, [], groups=[joined], dumped_ns=(second + 5) * S, pid=second)

    first, second = [of(0, 10), of(1, 12)], [of(0, 20), of(1, 20)]
    assert runs([second[0], *first, second[1]]) == [first, second]
    nowhere = recording(1, 2, [], groups=[], dumped_ns=23 * S)
    assert runs([*first, *second, nowhere]) == [first, [*second, nowhere]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name dumps"),
        (["no such file"], "no such file: No such file or directory"),
        (["4194305"], "there is no file 4194305; where it is a running process, say --pid 4194305"),
        (["--pid", "4194305"], "there is no process 4194305"),
        (["DIR"], "there is no *.ciuic-trace in this directory"),
        (["FILE"], "this is no flight recorder's memory or dump: it has only 5 bytes"),
    ],
)
def test_command_refuses(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    names = {"DIR": str(tmp_path), "FILE": str(tmp_path / "file")}
    done = run(*(names.get(each, each) for each in arguments))
    assert done.exit_code == 2
    assert f"ciuic trace: {said}" in done.output or said in done.output


def test_a_process_without_a_recorder_says_so() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        done = run("--pid", str(sleeper.pid))
        assert done.exit_code == 2
        assert "has no flight recorder: it has made no communicator" in done.output
    finally:
        sleeper.communicate(b"\n")
