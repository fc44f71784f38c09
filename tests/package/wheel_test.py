# SPDX-License-Identifier: Apache-2.0
"""The wheel, as a user gets it: built from the tree in isolation, installed into a clean venv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]

# What every Linux has; the rest must be in the wheel.
SYSTEM = re.compile(r"ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+")

# The PyTorch backend is there where torch was when the wheel was built; torch is in the process
# already when it is loaded. For any other torch its sources are there, and the public headers.
OF_TORCH = re.compile(r"lib(torch_cpu|c10)\.so")
SOURCES = ("ciuic/torch_backend/", "ciuic/include/ciuic/")


def run(*command: str | Path, **more) -> str:
    """The output of a command that ends well."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment |= more.pop("environment", {})
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **more,
    )
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ROOT / "build" / "wheel"
    shutil.rmtree(build, ignore_errors=True)
    # Flags and folder are such that ccache has the objects, where there is one.
    settings = [f"build-dir={build}", "cmake.define.CIUIC_WERROR=ON"]
    launcher = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    command += [f"--config-settings={setting}" for setting in settings]
    run(*command, environment=launcher)
    (built,) = folder.glob("ciuic-*.whl")
    return built


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory) -> Path:
    """A venv with the wheel, its dependencies and NumPy, and no torch."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "-q", f"{wheel}[numpy]", cwd=folder)
    return folder


def test_wheel_holds_what_it_needs_and_no_more(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names}
    packages = {name for name in folders if not name.endswith(".dist-info")}
    assert packages == {"ciuic", "ciuic_torch_entry"}
    for needed in ("py.typed", "_native.pyi", "__init__.py"):
        assert f"ciuic/{needed}" in names
    assert [name for name in names if re.match(r"ciuic/_native\..*so$", name)]
    assert [name for name in names if re.match(r"ciuic/libciuic\.so\.\d+$", name)]
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert [name for name in names if name.endswith("licenses/NOTICE")]
    assert "ciuic/torch_backend/group.cc" in names
    assert "ciuic/include/ciuic/communicator.h" in names
    others = [name for name in names if not name.startswith(SOURCES)]
    strangers = [name for name in others if re.search(r"_test\.|\.(a|h|cc|cmake)$", name)]
    strangers += [name for name in names if re.search(r"_test\.|CMake|README", name)]
    assert strangers == []


def test_libraries_find_each_other_in_one_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    folder = tmp_path / "ciuic"
    libraries = sorted(folder.glob("*.so*"))
    assert len(libraries) >= 2
    for library in libraries:
        dynamic = run("readelf", "-d", library)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        for name in needed:
            if library.name.startswith("libciuic_torch") and OF_TORCH.fullmatch(name):
                continue
            assert SYSTEM.fullmatch(name) or (folder / name).is_file(), f"{library.name}: {name}"
        if library.name.startswith(("libciuic", "_native")):
            assert re.search(r"\((RUNPATH|RPATH)\).*\[\$ORIGIN\]", dynamic), library.name
            sections = run("readelf", "-S", "-W", library)
            assert ".debug_info" not in sections, f"{library.name} is not stripped"


def test_metadata_and_version(venv):
    version = re.search(
        r'CIUIC_VERSION "(.*)"', (ROOT / "include/ciuic/version.h").read_text("utf-8")
    ).group(1)
    python = venv / "bin" / "python"
    code = "from importlib.metadata import version; print(version('ciuic'))"
    assert run(python, "-c", code, cwd=venv).strip() == version
    assert version in run(venv / "bin" / "ciuic", "--version", cwd=venv)
    assert version in run(python, "-m", "ciuic", "--version", cwd=venv)


def test_numpy_alone_is_enough(venv):
    code = """
import sys
import numpy
from ciuic import CiuicContext, all_reduce
context = CiuicContext(world_size=1, rank=0)
x = numpy.arange(5, dtype=numpy.float32)
assert all_reduce(x, op=CiuicContext.SUM, context=context) is x
assert x.tolist() == [0, 1, 2, 3, 4]
assert "torch" not in sys.modules
"""
    run(venv / "bin" / "python", "-c", code, cwd=venv)


def test_hello_between_two_ranks(venv):
    hello = ROOT / "examples" / "hello_all_reduce.py"
    output = run(venv / "bin" / "ciuic", "run", "-n", "2", hello, cwd=venv)
    assert output.strip()
