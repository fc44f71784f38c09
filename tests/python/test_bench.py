# SPDX-License-Identifier: Apache-2.0
"""``ciuic bench``: its figures, its order, and that no process of it is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benches import BENCH, SHORT, bench, state_of, wait_until

pytest.importorskip("ciuic")

from ciuic import plan
from ciuic.bench import groups, measure
from ciuic.bench.groups import BenchError, Group
from ciuic.bench.options import Options, Series, parse_size, sweep
from ciuic.bench.report import Report, percentile


def workers_of(pid: int) -> list[int]:
    """Workers of the bench that ``pid`` has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"ciuic.bench.worker" in words and parent == pid:
            found.append(int(entry.name))
    return found


# ---- what is measured ----


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_size(text) for text in ("8", "1K", "64m", "2GiB", "3kB")] == [
        8,
        1024,
        64 << 20,
        2 << 30,
        3072,
    ]
    for text in ("", "K", "-8", "1.5M", "8X"):
        with pytest.raises(ValueError, match="no size"):
            parse_size(text)


def test_a_sweep_grows_by_the_factor_up_to_the_end() -> None:
    assert sweep(8, 4096, 8) == [8, 64, 512, 4096]
    assert sweep(8, 4095, 8) == [8, 64, 512]
    for arguments in ((0, 8, 2), (16, 8, 2), (8, 64, 1)):
        with pytest.raises(ValueError):
            sweep(*arguments)


def test_options_that_cannot_be_measured_are_refused_by_name() -> None:
    for wrong, named in (
        ({"operation": "all_reduces"}, "all_reduces"),
        ({"implementations": ("glow",)}, "glow"),
        ({"implementations": ("gloo", "gloo")}, "each once"),
        ({"through": ("native",), "implementations": ("gloo",)}, "native"),
        ({"dtype": "float8"}, "float8"),
        ({"op": "band"}, "band"),
        ({"ranks": 1}, "at least two"),
        ({"implementations": ("ciuic:glow",)}, "ciuic:glow"),
        ({"implementations": ("ciuic:nccl",), "through": ("native",)}, "through native"),
        ({"implementations": ("ciuic:mpi",), "through": ("torch",)}, "through torch"),
        ({"sizes": ()}, "size"),
        ({"rounds": 0}, "rounds"),
    ):
        with pytest.raises(ValueError, match=named):
            Options(**wrong)  # type: ignore[arg-type]


def test_sizes_become_whole_elements_each_once() -> None:
    options = Options(sizes=(1, 8, 9, 1024), dtype="float64")
    assert options.counts() == [1, 128]
    assert Options().series() == [
        Series("ciuic", "native"),
        Series("ciuic", "python"),
        Series("gloo", "python"),
    ]


def test_each_implementation_is_called_in_the_ways_that_it_has() -> None:
    both = Options(through=("python", "torch"), implementations=("ciuic", "fake"), algorithm="ring")
    assert both.series() == [
        Series("ciuic", "python"),
        Series("ciuic", "torch"),
        Series("fake", "torch"),
        Series("ciuic by ring", "python"),
    ]
    steps = Options(operation="ddp", through=("step", "buckets"), implementations=("gloo",))
    assert steps.series() == [Series("gloo", "step"), Series("gloo", "buckets")]
    for wrong in ({"through": ("native",)}, {"through": ("step",), "dtype": "float64"}):
        with pytest.raises(ValueError):
            Options(operation="ddp", **wrong)  # type: ignore[arg-type]


def test_each_backend_is_an_implementation() -> None:
    named = ("ciuic", "ciuic:native", "ciuic:mpi", "ciuic:nccl", "gloo")
    ways = ("native", "python", "torch")
    assert Options(implementations=named, through=ways).series() == [
        Series("ciuic", "native"),
        Series("ciuic", "python"),
        Series("ciuic", "torch"),
        Series("ciuic:native", "native"),
        Series("ciuic:native", "python"),
        Series("ciuic:mpi", "native"),
        Series("ciuic:mpi", "python"),
        Series("ciuic:nccl", "python"),
        Series("gloo", "python"),
        Series("gloo", "torch"),
    ]


def test_an_algorithm_by_name_is_one_more_implementation() -> None:
    assert Options(algorithm="ring", implementations=("ciuic",)).series() == [
        Series("ciuic", "native"),
        Series("ciuic", "python"),
        Series("ciuic by ring", "native"),
        Series("ciuic by ring", "python"),
    ]


# ---- figures ----


def test_rows_have_medians_over_all_rounds_of_the_mean_over_ranks() -> None:
    options = Options(ranks=4, sizes=(4000,), implementations=("gloo",))
    report = Report(options)
    gloo = Series("gloo", "python")
    report.add(gloo, 1000, [[1000, 2000], [3000, 4000], [1000, 2000], [3000, 4000]], [800] * 4)
    report.add(gloo, 1000, [[9000], [9000], [9000], [9000]], [100, 200, 300, 400])
    (row,) = report.rows()
    assert (row["median_us"], row["p99_us"], row["rounds"], row["calls"]) == (3.0, 9.0, 2, 3)
    assert row["cpu_us"] == pytest.approx((0.4 + 0.25) / 2)
    assert row["bytes"] == 4000
    assert row["algbw_gb_s"] == pytest.approx(4000 / 3000, rel=1e-5)
    assert row["busbw_gb_s"] == pytest.approx(4000 / 3000 * 1.5, rel=1e-5)


def test_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 201)]
    assert percentile(values, 99) == 198.0
    assert percentile(values[:5], 99) == 5.0
    assert percentile([7.0], 99) == 7.0


# ---- real processes ----


def test_gloo_and_ciuic_are_measured_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "figures.json"
    done = bench(
        "all_reduce",
        "-n",
        "2",
        "--sizes",
        "8,4K,100000",
        "--seed",
        "5",
        "--json",
        str(file),
        *SHORT,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    rows = figures["rows"]
    assert [(row["bytes"], row["impl"], row["through"]) for row in rows] == [
        (size, impl, through)
        for size in (8, 4096, 100000)
        for impl, through in (("ciuic", "native"), ("ciuic", "python"), ("gloo", "python"))
    ]
    for row in rows:
        assert 0 < row["median_us"] <= row["p99_us"]
        assert row["rounds"] == 2
        assert row["algbw_gb_s"] > 0
    assert figures["seed"] == 5
    assert {"cpu", "cores"} <= figures["machine"].keys()
    assert "median" in done.stdout and "100,000" in done.stdout


@pytest.mark.slow
def test_torch_distributed_is_measured_over_all_that_it_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "torch.json"
    for words in (
        ["all_reduce", "--through", "torch", "--sizes", "4"],
        ["ddp", "--sizes", "1M"],
    ):
        done = bench(*words, "--impl", "ciuic,gloo,fake", "--json", str(file), *SHORT)
        assert done.returncode == 0, done.stderr
        found = json.loads(file.read_text())
        assert found["skipped"] == []
        ways = ("torch", "torch_async") if words[0] == "all_reduce" else ("step", "buckets")
        assert [(row["impl"], row["through"]) for row in found["rows"]] == [
            (impl, way) for impl in ("ciuic", "gloo", "fake") for way in ways
        ]
        assert all(row["cpu_us"] > 0 for row in found["rows"])


def test_an_algorithm_of_ones_own_is_measured_beside_the_chosen_one(tmp_path: Path) -> None:
    """From a module, and from a plan file; over Python and over C++."""
    module = Path(__file__).resolve().parents[2] / "examples" / "own_plan.py"
    file, figures = tmp_path / "plan.json", tmp_path / "figures.json"
    plan.export("two_shot", 2, file)
    file.write_text(file.read_text().replace("two_shot", "from_a_file"))
    sources = (("everyone", "--module", module), ("from_a_file", "--plan", file))
    for name, option, source in sources:
        done = bench(
            *("all_reduce", "-n", "2", "--sizes", "8,4K", "--impl", "ciuic", option, str(source)),
            *("--json", str(figures), *SHORT),
        )
        assert done.returncode == 0, done.stderr
        rows = json.loads(figures.read_text())["rows"]
        assert [(row["bytes"], row["impl"], row["through"]) for row in rows] == [
            (size, impl, through)
            for size in (8, 4096)
            for impl in ("ciuic", f"ciuic by {name}")
            for through in ("native", "python")
        ]


def test_an_algorithm_that_is_wrong_is_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan.export("two_shot", 2, file)
    file.write_text(
        file.read_text().replace("two_shot", "mine").replace('"final": true', '"lane": 1')
    )
    done = bench("--plan", str(file), "--sizes", "8", *SHORT)
    assert done.returncode == 2
    assert "rank 0" in done.stderr
    done = bench("--algorithm", "no_such_one", "--sizes", "8", *SHORT)
    assert done.returncode == 2
    assert "two_shot" in done.stderr


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8", "int64"])
@pytest.mark.parametrize("op", ["sum", "avg", "max", "product"])
@pytest.mark.slow
def test_results_of_every_kind_pass_the_check(dtype: str, op: str) -> None:
    options = Options(
        sizes=(8, 1000),
        dtype=dtype,
        op=op,
        rounds=1,
        round_ms=1,
        implementations=("ciuic",),
        through=("native",),
        ranks=3,
    )
    report = measure.run(options)
    assert len(report.rows()) == 2
    assert report.notes() == []


@pytest.mark.slow
def test_what_an_implementation_lacks_is_left_out_and_said() -> None:
    pytest.importorskip("torch")
    done = bench("--impl", "gloo", "--dtype", "int32", "--op", "avg", "--sizes", "8", *SHORT)
    assert done.returncode == 1
    assert "gloo has no avg of int32" in done.stderr


def test_wrong_arguments_are_a_usage_error() -> None:
    done = bench("--sizes", "8,many")
    assert done.returncode == 2
    assert "many" in done.stderr


def gloo_group(tmp_path: Path, timeout_s: float = 60.0) -> Group:
    pytest.importorskip("torch")
    settings = {
        "ranks": 2,
        "counts": [2],
        "operation": "all_reduce",
        "dtype": "float32",
        "op": "sum",
        "through": ["python"],
        "timeout_s": timeout_s,
        "folder": str(tmp_path),
    }
    return Group("gloo", [dict(os.environ)] * 2, settings, timeout_s)


@pytest.mark.slow
def test_a_paused_group_stands_until_it_goes_on(tmp_path: Path) -> None:
    group = gloo_group(tmp_path)
    try:
        assert group.join() is None
        for _ in range(3):
            group.pause()
            assert [state_of(pid) for pid in group.pids] == ["T", "T"]
            group.resume()
            answers = group.ask(do="check", through="python", count=2)
            assert answers == [{"difference": -1}] * 2
    finally:
        pids = group.pids
        group.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    group = gloo_group(tmp_path)
    try:
        assert group.join() is None
        os.kill(group.pids[1], signal.SIGKILL)
        with pytest.raises(BenchError, match=r"gloo, rank [01]"):
            group.ask(do="run", through="python", count=2, warm_up=0, iterations=1)
        with pytest.raises(BenchError, match="rank 1: its process ended with signal 9"):
            group.pause()
    finally:
        group.kill()


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    group = gloo_group(tmp_path)
    try:
        assert group.join() is None
        group.pause()
        group._timeout_s = 0.2
        with pytest.raises(BenchError, match="rank 0: no answer after"):
            group.ask(do="run", through="python", count=2, warm_up=0, iterations=1)
    finally:
        group.kill()


@pytest.mark.slow
def test_a_wrong_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    answers = groups.Group.answers

    def with_a_difference(self: Group) -> list[dict[str, Any]]:
        found = answers(self)
        return [{"difference": 1} if "difference" in answer else answer for answer in found]

    monkeypatch.setattr(groups.Group, "answers", with_a_difference)
    options = Options(implementations=("gloo",), rounds=1, round_ms=1)
    with pytest.raises(BenchError, match=r"gloo through python, rank 0: wrong result .* element 1"):
        measure.run(options)
    assert workers_of(os.getpid()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(number: signal.Signals) -> None:
    pytest.importorskip("torch")
    command = [*BENCH, "--impl", "gloo", "--sizes", "8", "--rounds", "100000", "--round-ms", "3"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids: list[int] = []
    try:

        def measures() -> bool:
            pids[:] = workers_of(process.pid)
            return len(pids) == 2 and "T" in [state_of(pid) for pid in pids]

        wait_until(measures, "a paused worker")
        process.send_signal(number)
        code = process.wait(30)
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their end")
    finally:
        process.kill()
        process.wait()
