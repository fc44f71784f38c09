# SPDX-License-Identifier: Apache-2.0
"""Builds the backend's library for a torch that the package brings none for.

The sources, and the public headers of the core, are in the package. One compiler call makes one
library of them, which is kept in the user's cache, for this torch, these sources, this compiler and
this core. Processes that want it at the same time wait for the one that builds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import torch

from ciuic import _native
from ciuic.errors import UnavailableError

_PACKAGE = pathlib.Path(_native.__file__).parent
_SOURCES = _PACKAGE / "torch_backend"
_HEADERS = _PACKAGE / "include"
_COMPILERS = ("c++", "g++", "clang++")


def library() -> pathlib.Path:
    """The library for the torch that is here, from the cache, or built now.

    Raises:
        ciuic.UnavailableError: No compiler, no folder to write to, or sources that this torch does
            not compile; the message has what the compiler said.
    """
    compiler = find_compiler()
    place = cache_folder() / key(compiler) / file_name()
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.with_suffix(".lock")):
            if not place.exists():  # another process may have built it meanwhile
                build(compiler, place)
    except OSError as error:
        raise UnavailableError(
            f"the backend for torch {torch.__version__} cannot be kept in {place.parent}: {error}; "
            "XDG_CACHE_HOME names another folder for caches"
        ) from None
    return place


def file_name() -> str:
    """c10d's classes change with every minor version of torch: "libciuic_torch_2_13.so"."""
    return f"libciuic_torch_{'_'.join(torch.__version__.split('.')[:2])}.so"


def cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/ciuic/torch``."""
    caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(caches) / "ciuic" / "torch"


def find_compiler() -> list[str]:
    """The C++ compiler as a command: ``$CXX``, or the first that is there."""
    named = shlex.split(os.environ.get("CXX", ""))
    candidates = [named] if named else [[name] for name in _COMPILERS]
    for command in candidates:
        if shutil.which(command[0]):
            return command
    wanted = f"CXX={named[0]} is not there" if named else "there is no C++ compiler"
    raise UnavailableError(
        f"this package brings no backend for torch {torch.__version__}, and it cannot be built "
        f"now: {wanted}. Install one (Debian, Ubuntu: apt install g++; it must know C++20), or "
        "the torch that the package was built for"
    )


def key(compiler: list[str]) -> str:
    """Names the folder of what this library depends on."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(version)
    digest.update(" ".join(compiler).encode())
    digest.update(str(torch.__version__).encode())
    for source in sorted([*_SOURCES.glob("*.cc"), *_SOURCES.glob("*.h"), *_HEADERS.rglob("*.h")]):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return f"{_native.version()}-torch{torch.__version__}-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def locked(file: pathlib.Path) -> Iterator[None]:
    """Holds a lock that ends with the process."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(compiler: list[str], place: pathlib.Path) -> None:
    """Compiles; the library is at ``place`` whole, or not at all."""
    sources = sorted(_SOURCES.glob("*.cc"))
    if not sources:
        raise UnavailableError(f"the sources of the backend are missing: {_SOURCES}")
    sys.stderr.write(f"ciuic: building the backend for torch {torch.__version__}, once ...\n")
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made = pathlib.Path(folder) / place.name
        # torch's headers take longest by far: all files as one.
        whole = pathlib.Path(folder) / "ciuic_torch.cc"
        whole.write_text("".join(f'#include "{source}"\n' for source in sources))
        command = compile_command(compiler, whole, made)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise UnavailableError(
                f"the backend does not compile for torch {torch.__version__}: "
                f"{shlex.join(command)}\n{result.stderr[-4000:]}"
            )
        os.replace(made, place)


def compile_command(compiler: list[str], source: pathlib.Path, made: pathlib.Path) -> list[str]:
    """As ``CMakeLists.txt`` beside the sources has it."""
    torch_folder = pathlib.Path(torch.__file__).parent
    core = next(_core_libraries(), None)
    if core is None:
        raise UnavailableError(f"libciuic.so is not beside {_native.__file__}")
    version = str(torch.__version__).split("+")[0]
    return [
        *compiler,
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-w"),
        *("-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        f'-DCIUIC_TORCH_VERSION="{version}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{_HEADERS}",
        f"-I{_SOURCES}",
        *("-isystem", f"{torch_folder}/include"),
        *("-isystem", f"{torch_folder}/include/torch/csrc/api/include"),
        str(source),
        *("-o", str(made)),
        str(core),
        f"-L{torch_folder}/lib",
        *("-ltorch_cpu", "-lc10"),
    ]


def _core_libraries() -> Iterator[pathlib.Path]:
    """Where libciuic.so lies: the very file that this process has loaded."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            file = pathlib.Path(line.rsplit(maxsplit=1)[-1])
            if file.name.startswith("libciuic.so"):
                yield file
