# SPDX-License-Identifier: Apache-2.0
"""Random sequences of operations, dtypes, counts, strides, groups and orders on 2 to 5 ranks,
against NumPy. The ranks stay up and are fed scripts (``programs/scripted.py``), so that an example
takes milliseconds. A script that fails is printed, and may join :data:`KNOWN`.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ciuic import ReduceOp, _native, dtypes
from ciuic.run.environment import Job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORLD = 5
PROGRAM = Path(__file__).parent / "programs" / "scripted.py"
ANSWER_S = 60  # for a script, whose operations have 20 s each; the machine may be busy

REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"]
MOVEMENTS = [
    "all_gather",
    "all_gather_v",
    "gather",
    "gather_v",
    "broadcast",
    "scatter",
    "scatter_v",
    "all_to_all",
    "all_to_all_v",
    "messages",
    "barrier",
]
COUNTS = st.sampled_from([0, 1, 2, 3, 7, 100, 1_025, 9_000])  # the last ones: eager, and not
PAIRS = [
    (dtype, op.name)
    for dtype in dtypes.names()
    for op in ReduceOp
    if _native.is_reducible(dtypes.CODE_OF_NAME[dtype], int(op))
]

# Scripts that have failed once.
KNOWN = [
    # A part without elements, whose address NumPy does not tell.
    """{"groups": [[1, 0]], "seed": 0, "blocks": [{"mode": "persistent", "steps": [
    {"op": "scatter_v", "group": 0, "dtype": "int8", "reduce": "MAX", "count": 3, "root": 1,
     "counts": [1, 0, 0, 0, 9000], "layout": 0, "list": false, "told": true, "seed": 169}]}]}""",
]


class Ranks:
    """The processes that do what scripts say; anew where one has failed."""

    def __init__(self, folder: Path, transport: str, hosts: int) -> None:
        self._errors = folder / "errors"
        self._transport = transport
        self._hosts = hosts
        self._processes: list[subprocess.Popen[str]] = []
        self._job: Job | None = None

    def start(self) -> None:
        self._job = Job(WORLD)
        with self._errors.open("w") as errors:
            for rank in range(WORLD):
                variables = {"CIUIC_TRANSPORT": self._transport, "OMP_NUM_THREADS": "1"}
                if self._hosts > 1:
                    variables["CIUIC_HOST_ID"] = f"host-{rank * self._hosts // WORLD}"
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, str(PROGRAM)],
                        env={**self._job.environment(rank), **variables},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                    )
                )

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        self._processes.clear()
        if self._job is not None:
            self._job.close()
            self._job = None

    def run(self, script: dict[str, Any]) -> None:
        """Fails where a rank does."""
        line = json.dumps(script)
        if not self._processes:
            self.start()
        answers = self._ask(line + "\n")
        wrong = {rank: answer for rank, answer in enumerate(answers) if answer != "ok"}
        if wrong:
            self.end()
            texts = "\n".join(f"rank {rank}: {answer}" for rank, answer in wrong.items())
            raise AssertionError(f"{texts}\nscript: {line}")

    def _ask(self, line: str) -> list[str]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        deadline = time.monotonic() + ANSWER_S
        return [self._answer(process, deadline) for process in self._processes]

    def _answer(self, process: "subprocess.Popen[str]", deadline: float) -> str:
        assert process.stdout is not None
        left = max(0.0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], left)[0]:
            return f"no answer within {ANSWER_S} s"
        answer = process.stdout.readline()  # one line at most is under way
        if answer:
            return str(json.loads(answer))
        return f"ended, with {process.wait()}: {self._errors.read_text()[-4000:]}"


@st.composite
def steps(draw: st.DrawFn, mode: str, groups: int) -> dict[str, Any]:
    op = draw(st.sampled_from(REDUCTIONS + MOVEMENTS))
    dtype, reduce = draw(st.sampled_from(PAIRS))
    if op in MOVEMENTS:
        dtype = draw(st.sampled_from([*dtypes.names(), "datetime64[s]", ">i2", "S3"]))
    return {
        "op": op,
        "group": draw(st.integers(0, groups - 1)),
        "dtype": dtype,
        "reduce": reduce,
        "count": draw(COUNTS),
        "counts": draw(st.lists(COUNTS, min_size=5, max_size=5)),
        "root": draw(st.integers(0, WORLD - 1)),
        "layout": draw(st.integers(0, 4)),
        "list": draw(st.booleans()),
        # Where they are not, they tell each other, which blocks.
        "told": mode != "blocking" or draw(st.booleans()),
        "seed": draw(st.integers(0, 1 << 16)),
    }


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    ranks = draw(st.integers(2, WORLD))
    members = st.lists(st.integers(0, ranks - 1), min_size=1, max_size=ranks, unique=True)
    groups = [list(range(ranks)), *draw(st.lists(members, max_size=2))]
    groups = [list(group) for group in dict.fromkeys(map(tuple, groups))]
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        mode = draw(st.sampled_from(["blocking", "async", "coalesce", "persistent"]))
        listed = draw(st.lists(steps(mode, len(groups)), min_size=1, max_size=5))
        blocks.append({"mode": mode, "steps": listed})
    return {"groups": groups, "seed": draw(st.integers(0, 1 << 16)), "blocks": blocks}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("shm", 1), id="shm"),
        pytest.param(("auto", 2), id="two hosts"),
        pytest.param(("tcp", 1), id="tcp", marks=pytest.mark.slow),
    ],
)
def ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ranks]:
    started = Ranks(tmp_path_factory.mktemp("ranks"), *request.param)
    yield started
    started.end()


FIXTURES = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=FIXTURES)
@given(script=scripts())
def test_random_operations(ranks: Ranks, script: dict[str, Any]) -> None:
    ranks.run(script)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=3000, deadline=None, print_blob=True, suppress_health_check=FIXTURES)
@given(script=scripts())
def test_many_random_operations(ranks: Ranks, script: dict[str, Any]) -> None:
    ranks.run(script)


@pytest.mark.parametrize("script", KNOWN)
def test_known(ranks: Ranks, script: str) -> None:
    ranks.run(json.loads(script))
