# SPDX-License-Identifier: Apache-2.0
"""Several processes: under ``ciuic run``, or one by one with an environment of their own."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from ciuic.run.environment import Job

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # network_namespaces.py
PROGRAMS = HERE / "programs"
TIMEOUT_S = 240
END_S = 20  # for what has been killed; the machine may be busy

Environment = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def environment(environment: Environment) -> Environment:
    """One thread a rank, since tests share few cores."""
    return partial(environment, OMP_NUM_THREADS="1")


@pytest.fixture
def programs() -> Path:
    """Where the programs of these tests are."""
    return PROGRAMS


def _state_of(pid: int) -> str:
    """The kernel's letter: R, S, T (stopped), Z; X where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.fixture
def state_of() -> Callable[[int], str]:
    """:func:`_state_of`."""
    return _state_of


@pytest.fixture
def all_end() -> Callable[[str], None]:
    """Fails unless the processes that an output names, "pids 1 2 3", end soon."""

    def check(text: str) -> None:
        pids = [int(pid) for line in re.findall(r"pids ([\d ]+)", text) for pid in line.split()]
        assert pids
        deadline = time.monotonic() + END_S
        while left := [pid for pid in pids if _state_of(pid) not in "ZX"]:
            assert time.monotonic() < deadline, f"{left} of {pids} live"
            time.sleep(0.05)

    return check


Launch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ciuic_run(tmp_path: Path, environment: Environment) -> Launch:
    """``ciuic run -n N program arguments``, to its end."""

    def launch(
        ranks: int, program: str, *arguments: str, options: Sequence[str] = (), **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ciuic", "run", "-n", str(ranks), *options, "--"]
        return subprocess.run(
            [*command, str(PROGRAMS / program), *arguments],
            # Where the launcher puts the flight recorders of a job that fails.
            env=environment(**{"TMPDIR": str(tmp_path), **variables}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    return launch


class Processes:
    """Ranks that are started one by one, each with variables of its own."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        program: str,
        *arguments: str,
        variables: Mapping[str, str],
        prefix: Sequence[str] = (),
        stdin: bool = False,
    ) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAMS / program), *arguments],
            env=self._environment(**variables),
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def outputs(self) -> list[str]:
        """What each wrote, when all have ended."""
        return [process.communicate(timeout=TIMEOUT_S)[0] for process in self._started]

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def processes(environment: Environment) -> Iterator[Processes]:
    started = Processes(environment)
    yield started
    started.end()


@pytest.fixture
def job() -> Iterator[Callable[[int], Job]]:
    """Makes a store, a secret and a port for ranks that a test starts by itself."""
    jobs: list[Job] = []

    def make(world_size: int) -> Job:
        jobs.append(Job(world_size))
        return jobs[-1]

    yield make
    for made in jobs:
        made.close()
