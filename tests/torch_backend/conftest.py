# SPDX-License-Identifier: Apache-2.0
"""Checks that run in several processes, which are started once for a whole file of them.

A file ``checks/NAME.py`` has functions ``check_...()``. Every rank calls all of them, in their
order; ``NAME_test.py`` has one test for each, which fails where a rank's call did. So the ranks
import torch once, not once for each check.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # fake_gpus.py
TIMEOUT_S = 280


@pytest.fixture(scope="session")
def environment(environment: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """One thread a rank, since tests share few cores; gloo keeps to this machine."""
    return partial(environment, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")


def checks_of(file: Path) -> list[str]:
    """The names of a file's checks, in their order; does not import it."""
    tree = ast.parse(file.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if node.name.startswith("check_")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument ``check`` is there for each check of its file."""
    if "check" in metafunc.fixturenames:
        left_out = getattr(metafunc.module, "ENVIRONMENT", {}).get("LEFT_OUT", "").split(",")
        checks = checks_of(HERE / "checks" / metafunc.module.CHECKS)
        metafunc.parametrize("check", [check for check in checks if check not in left_out])


class Outcomes:
    """What the ranks of one run have said."""

    def __init__(self, folder: Path, ranks: int, ended: list[int | None]) -> None:
        self._said = [self._read(folder / f"{rank}.jsonl") for rank in range(ranks)]
        self._logs = [(folder / f"{rank}.log").read_text()[-6000:] for rank in range(ranks)]
        self._ended = ended

    @staticmethod
    def _read(file: Path) -> dict[str, str]:
        if not file.exists():
            return {}
        return dict(json.loads(line) for line in file.read_text().splitlines())

    def assert_passed(self, check: str) -> None:
        """Fails with what each rank has to say."""
        for rank, said in enumerate(self._said):
            outcome = said.get(check, f"did not get there; exit status {self._ended[rank]}")
            assert outcome == "passed", f"rank {rank}: {outcome}\n{self._logs[rank]}"

    def assert_ended_well(self) -> None:
        """No rank has crashed, or hung, at its end."""
        assert self._ended == [0] * len(self._ended), "\n".join(self._logs)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    environment: Callable[..., dict[str, str]],
) -> Iterator[Outcomes]:
    """Runs the checks of the module's file on its number of ranks, on fake GPUs where it wants."""
    module = request.module
    more = dict(getattr(module, "ENVIRONMENT", {}))
    if "FAKE_GPUS" in more:
        import fake_gpus

        fakes = request.getfixturevalue("fakes")
        build = Path(fakes["CIUIC_CUDA_LIBRARY"]).parents[2]
        more |= {**fakes, "FAKE_GPU_LIBRARY": str(fake_gpus.compiled(build))}
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, HERE / "run_checks.py", HERE / "checks" / module.CHECKS, folder]
    ranks = []
    for rank in range(module.RANKS):
        with (folder / f"{rank}.log").open("w") as log:
            places = {"RANK": str(rank), "WORLD_SIZE": str(module.RANKS)}
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(**places, **more)
            )
            ranks.append(process)
    ended: list[int | None] = []
    for process in ranks:
        try:
            ended.append(process.wait(TIMEOUT_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended.append(None)
    yield Outcomes(folder, module.RANKS, ended)
