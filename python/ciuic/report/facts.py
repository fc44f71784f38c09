# SPDX-License-Identifier: Apache-2.0
"""What a report takes of this machine. Of the environment: what :data:`TAKEN` names, no more."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ciuic.report.strip import HIDDEN, Stripper, is_secret_name

TAKEN = (
    *("CIUIC_", "NCCL_", "GLOO_", "MASTER_", "OMP_NUM_THREADS"),
    *("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "NODE_RANK", "TORCHELASTIC_"),
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "PMIX_VERSION", "MPI_LOCAL", "HYDRA_"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES"),
    *("SLURM_STEP_N", "SLURM_TASKS_PER_NODE", "SLURM_MPI_TYPE", "SLURM_CPUS_"),
    *("JOB_COMPLETION_INDEX", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_"),
)
"""Beginnings of the names of the variables that a report may have."""

_PACKAGES = (
    *("ciuic", "numpy", "torch", "ml_dtypes", "transformers", "typer", "rich", "mpi4py"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
_KERNEL_SETTINGS = (
    *("kernel/yama/ptrace_scope", "fs/file-max", "vm/overcommit_memory"),
    *("net/core/somaxconn", "net/core/rmem_max", "net/core/wmem_max"),
    *("net/ipv4/ip_local_port_range", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"),
    *("net/ipv4/tcp_congestion_control", "net/ipv6/conf/all/disable_ipv6"),
)
_CGROUP = ("cpu.max", "memory.max", "memory.high", "pids.max", "cpuset.cpus.effective")
_OF_INTERFACE = ("mtu", "speed", "operstate")


def all_facts(stripper: Stripper) -> dict[str, Any]:
    """Members of the archive, name by name. What cannot be had says why, and stops nothing."""
    from ciuic.cli.info import collect

    parts: dict[str, Callable[[], Any]] = {
        "info.json": collect,
        "versions.json": versions,
        "machine.json": machine,
        "environment.json": lambda: environment(os.environ),
    }
    found: dict[str, Any] = {}
    for name, take in parts.items():
        try:
            found[name] = stripper.value(take())
        except Exception as error:
            found[name] = {"error": stripper.text(f"{type(error).__name__}: {error}")}
    return found


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that :data:`TAKEN` names. Values of secrets are hidden; others are yet to be
    stripped."""
    return {
        name: HIDDEN if is_secret_name(name) and value else value
        for name, value in sorted(variables.items())
        if name.startswith(TAKEN)
    }


def versions() -> dict[str, Any]:
    """Of Python, the system, and the packages beside; nothing is imported for it."""
    return {
        "python": sys.version,
        "implementation": platform.python_implementation(),
        "system": _os_release(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "packages": {name: _version_of(name) for name in _PACKAGES},
    }


def machine() -> dict[str, Any]:
    """Interfaces beyond what ``ciuic info`` has, limits, memory, settings of the kernel."""
    return {
        "interfaces": {
            path.name: {name: _line_of(path / name) for name in _OF_INTERFACE}
            for path in sorted(Path("/sys/class/net").glob("*"))
        },
        "limits": {
            name: [_limit(value) for value in resource.getrlimit(getattr(resource, name))]
            for name in sorted(vars(resource))
            if name.startswith("RLIMIT_")
        },
        "cores": {"all": os.cpu_count(), "allowed": len(os.sched_getaffinity(0))},
        "memory": _memory(),
        "cgroup": {name: _line_of(Path("/sys/fs/cgroup") / name) for name in _CGROUP},
        "kernel": {name: _line_of(Path("/proc/sys") / name) for name in _KERNEL_SETTINGS},
        "folders": {path: _space_of(path) for path in ("/dev/shm", tempfile.gettempdir())},
    }


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _os_release() -> str | None:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return None


def _limit(value: int) -> int | str:
    return "unlimited" if value == resource.RLIM_INFINITY else value


def _line_of(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return None


def _memory() -> dict[str, str]:
    wanted = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Shmem", "Mlocked")
    lines = (_line_of(Path("/proc/meminfo")) or "").splitlines()
    pairs = (line.partition(":")[::2] for line in lines)
    return {name: value.strip() for name, value in pairs if name in wanted}


def _space_of(path: str) -> dict[str, int] | None:
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage(path)
        return {"bytes": usage.total, "free": usage.free}
    return None
