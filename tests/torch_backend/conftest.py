# SPDX-License-Identifier: Apache-2.0
"""Checks that run in several processes, which are started once for a whole file of them.

A file ``checks/NAME.py`` has functions ``check_...()``. Every rank calls all of them, in their
order; ``NAME_test.py`` has one test for each, which fails where a rank's call did. So the ranks
import torch once, not once for each check.
"""

import ast
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # its modules

from ranks_of_checks import Outcomes, run_ranks  # noqa: E402

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


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    environment: Callable[..., dict[str, str]],
) -> Outcomes:
    """Runs the checks of the module's file on its number of ranks, on fake GPUs where it wants."""
    module = request.module
    more = dict(getattr(module, "ENVIRONMENT", {}))
    if "FAKE_GPUS" in more:
        import fake_gpus

        fakes = request.getfixturevalue("fakes")
        build = Path(fakes["CIUIC_CUDA_LIBRARY"]).parents[2]
        more |= {**fakes, "FAKE_GPU_LIBRARY": str(fake_gpus.compiled(build))}
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(module.CHECKS, module.RANKS, folder, lambda _: environment(**more), TIMEOUT_S)
