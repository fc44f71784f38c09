# SPDX-License-Identifier: Apache-2.0
"""The checks of the installation and the machine that need no list of cases."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ciuic import _native
from ciuic.selftest.starter import ranks

_STORE_RANKS = 2
_STORE_TIMEOUT_S = 60
_LEAST_DESCRIPTORS = 256
_MEET = """
import sys
from ciuic import CiuicContext
with CiuicContext(timeout_s=30) as context:
    context.barrier()
"""


class Finding(NamedTuple):
    """One check: its name behind ``machine/``, whether all is well, and what was found."""

    name: str
    good: bool
    text: str


def all_findings() -> dict[str, Callable[[], Finding]]:
    """Each check by its name."""
    return {
        "version": _version,
        "store": _store,
        "memory": _memory,
        "descriptors": _descriptors,
    }


def _version() -> Finding:
    """Whether package, extension and library are of one piece: LD_LIBRARY_PATH may lead to another
    libciuic, and a source tree in the working directory to another package."""
    import ciuic

    loaded = _native.version()
    good, text = True, f"ciuic {loaded}, ABI {_native.abi()}"
    if ciuic.__version__ != loaded:
        return Finding("version", False, f"the package is {ciuic.__version__}, libciuic {loaded}")
    with contextlib.suppress(metadata.PackageNotFoundError):
        installed = metadata.version("ciuic")
        if installed != loaded:
            good, text = False, f"pip has installed {installed}, and libciuic {loaded} is loaded"
    for path in _loaded_libraries():
        home = os.path.dirname(os.path.realpath(_native.__file__))
        if os.path.dirname(path) not in (home, os.path.join(os.path.dirname(home), "src")):
            good, text = False, f"{path} is loaded, which is not beside the package ({home})"
    return Finding("version", good, text)


def _loaded_libraries() -> list[str]:
    """Every libciuic of this process: one, or none where the extension holds it."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.rstrip("\n").partition("/")[2] for line in file}
    return sorted({"/" + path for path in paths if os.path.basename(path).startswith("libciuic")})


def _store() -> Finding:
    """Ranks that meet by ``CIUIC_STORE=file:///...``."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ciuic-selftest-")))
        meeting = folder / "store"
        meeting.mkdir(mode=0o700)
        command = [sys.executable, "-c", _MEET]
        variables = {"CIUIC_STORE": f"file://{meeting}", "CIUIC_SECRET": ""}
        started = stack.enter_context(ranks(command, folder, variables, _STORE_RANKS))
        for rank, process in enumerate(started):
            try:
                process.wait(_STORE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return Finding("store", False, f"rank {rank} has not met the other in time")
            if process.returncode != 0:
                said = (folder / f"err.{rank}").read_text("utf-8", "replace").strip()
                last = said.splitlines()[-1] if said else f"exit code {process.returncode}"
                return Finding("store", False, f"file:// store in {tempfile.gettempdir()}: {last}")
    return Finding("store", True, f"ranks meet by a file:// store in {tempfile.gettempdir()}")


def _memory() -> Finding:
    """Shared memory is anonymous: neither the size of /dev/shm nor the limit of locked memory
    matters."""
    try:
        descriptor = os.memfd_create("ciuic-selftest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.close(descriptor)
    except OSError as error:
        return Finding(
            "memory", False, f"memfd_create: {error.strerror}: there is no shared memory"
        )
    text = "shared memory by memfd_create; "
    with contextlib.suppress(OSError):
        text += f"/dev/shm ({shutil.disk_usage('/dev/shm').total >> 20} MiB) is not used, "
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    told = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
    return Finding("memory", True, f"{text}nor is memory locked (limit {told})")


def _descriptors() -> Finding:
    soft, hard = map(_count, resource.getrlimit(resource.RLIMIT_NOFILE))
    good = soft >= _LEAST_DESCRIPTORS
    text = f"{soft} descriptors a process may have"
    if not good and hard >= _LEAST_DESCRIPTORS:
        text += f": few for many ranks; `ulimit -n {hard}` before the job allows more"
    elif not good:
        text += ": few for many ranks; the system's limit (limits.conf, docker --ulimit) is as low"
    return Finding("descriptors", good, text)


def _count(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
