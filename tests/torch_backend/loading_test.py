# SPDX-License-Identifier: Apache-2.0
"""How torch comes to the backend: an entry point, versions, a library built on its first use."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ciuic.errors import UnavailableError

pytestmark = pytest.mark.slow

USES_IT = """
import torch, torch.distributed as dist
dist.init_process_group("ciuic", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2)
dist.all_reduce(x)
print("reduced", x.tolist())
"""


def run(program: str, environment: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **more},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_no_import_is_needed(environment: Callable[..., dict[str, str]]) -> None:
    """Nor does ``import torch`` load anything of ciuic's but the entry point. The process ends well
    though it destroys no group."""
    program = (
        "import sys, torch.distributed as dist\n"
        "assert 'ciuic' not in sys.modules and 'ciuic_torch_entry' in sys.modules\n"
        "assert dist.Backend.backend_capability['ciuic'] == ['cpu', 'cuda']\n"
    )
    done = run(program + USES_IT, environment())
    assert done.returncode == 0 and "reduced [1.0, 1.0]" in done.stdout, done.stderr


def test_import_where_torch_loads_no_extensions(
    environment: Callable[..., dict[str, str]],
) -> None:
    program = (
        "import torch.distributed as dist\n"
        "assert 'ciuic' not in dist.Backend.backend_list\n"
        "import ciuic.torch\n"
    )
    done = run(program + USES_IT, environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert done.returncode == 0, done.stderr


def test_entry_point_never_breaks_torch(environment: Callable[..., dict[str, str]]) -> None:
    program = (
        "import torch, torch.distributed as dist, ciuic_torch_entry, warnings\n"
        "def refuse(*_, **__): raise RuntimeError('no more backends')\n"
        "dist.Backend.register_backend = refuse\n"
        "del dist.Backend._plugins['CIUIC']\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    ciuic_torch_entry.register()\n"
        "assert 'no more backends' in str(seen[0].message), seen\n"
    )
    done = run(program, environment())
    assert done.returncode == 0, done.stderr


def test_old_torch_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from ciuic.torch import loading

    monkeypatch.setattr(torch, "__version__", "2.12.1")
    with pytest.raises(UnavailableError, match=r"torch 2\.13 or newer, and this is 2\.12\.1"):
        loading.load()


def test_library_for_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ciuic.torch import backend, loading

    backend.operators()
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    with pytest.raises(UnavailableError, match=r"is for torch 2\.13\.\d+, not 2\.14\.0"):
        loading.check(Path("library.so"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ciuic.torch import building

    monkeypatch.setenv("CXX", "/no/such/c++ -O1")
    with pytest.raises(UnavailableError, match=r"CXX=/no/such/c\+\+ is not there"):
        building.library()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"there is no C\+\+ compiler"):
        building.library()


def test_sources_that_do_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the compiler says is told, and nothing is left behind."""
    from ciuic.torch import building

    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'no such standard' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    with pytest.raises(
        UnavailableError, match=r"(?s)does not compile for torch .*no such standard"
    ):
        building.library()
    left = [path.suffix for path in (tmp_path / "caches").rglob("*") if path.is_file()]
    assert left == [".lock"]


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ciuic.torch import building

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME names another folder"):
        building.library()


NOT_SHIPPED = "import ciuic.torch.loading\nciuic.torch.loading.shipped = lambda: None\n"


# Says what it was called with, waits until it may go on, and "compiles" the library that is there.
COMPILER = """#!/bin/sh
[ "$1" = --version ] && exec echo recorder 1.0
printf '%s\\n' "$@" end >> {folder}/called
read -r word < {folder}/go_on
while [ "$1" != -o ]; do shift; done
exec cp {shipped} "$2"
"""


def wait_until(is_true: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 100
    while not is_true():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, is_true
        time.sleep(0.01)


def waits_for_a_lock(process: subprocess.Popen[str]) -> bool:
    """By the kernel's list of locks and, with an arrow, of who waits for one."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any(" -> FLOCK " in line and str(process.pid) in line.split() for line in lines)


def start_two(environment: dict[str, str]) -> list[subprocess.Popen[str]]:
    program = [sys.executable, "-c", NOT_SHIPPED + USES_IT]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [subprocess.Popen(program, env=environment, text=True, **pipes) for _ in range(2)]


def assert_one_has_built(both: list[subprocess.Popen[str]], cache: Path) -> None:
    said = [process.communicate(timeout=280) for process in both]
    for process, (out, error) in zip(both, said, strict=True):
        assert process.returncode == 0 and "reduced [1.0, 1.0]" in out, error
    assert sum("building the backend" in error for _, error in said) == 1, said
    (library,) = cache.rglob("*.so")
    assert library.name.startswith("libciuic_torch_")


def test_one_process_builds_for_all(
    environment: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Two at once: one calls the compiler, the other waits for it."""
    from ciuic.torch import loading

    shipped = loading.shipped()
    if shipped is None:
        pytest.skip("nothing to stand for what a compiler makes")
    compiler, cache, called = tmp_path / "c++", tmp_path / "cache", tmp_path / "called"
    compiler.write_text(COMPILER.format(folder=tmp_path, shipped=shipped))
    compiler.chmod(0o755)
    os.mkfifo(tmp_path / "go_on")
    both = start_two(environment(CXX=str(compiler), XDG_CACHE_HOME=str(cache)))
    try:
        wait_until(lambda: called.exists() and any(map(waits_for_a_lock, both)), *both)
        (tmp_path / "go_on").write_text("go on\n")
        assert_one_has_built(both, cache)
    finally:
        for process in both:
            process.kill()
    words = called.read_text().split("\n")
    assert words.count("end") == 1, words
    for word in (
        "-std=c++20",
        f'-DCIUIC_TORCH_VERSION="{torch.__version__.split("+")[0]}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *("-ltorch_cpu", "-lc10", "-shared"),
    ):
        assert word in words, words
    headers = [Path(word[2:]) for word in words if word.startswith("-I")]
    assert any((folder / "ciuic" / "communicator.h").exists() for folder in headers), headers
    assert any((folder / "group.h").exists() for folder in headers), headers


@pytest.mark.nightly
def test_built_on_first_use(environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    """By the compiler that is here, which takes a minute; a third process finds it."""
    with_cache = environment(XDG_CACHE_HOME=str(tmp_path))
    assert_one_has_built(start_two(with_cache), tmp_path)
    done = run(NOT_SHIPPED + USES_IT, with_cache)
    assert done.returncode == 0 and "building" not in done.stderr, done.stderr
