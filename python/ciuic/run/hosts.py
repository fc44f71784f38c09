# SPDX-License-Identifier: Apache-2.0
"""``ciuic run -H`` and ``--hostfile``: ranks on several machines over ssh, through ``mpiexec``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from ciuic.errors import InvalidArgumentError, UnavailableError
from ciuic.run.environment import FOREIGN_PREFIXES

_VERSION_S = 30
# Of an outer launcher, in the words of the ranks that are started here.
_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
# Open MPI hands on nothing but its own variables.
_HANDED_ON = re.compile(r"CIUIC_\w+|PYTHON\w+|OMP_NUM_THREADS|PATH|LD_LIBRARY_PATH|VIRTUAL_ENV")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]")


class Host(NamedTuple):
    """A machine, by the name that ssh knows, and how many ranks it gets."""

    name: str
    ranks: int

    def __str__(self) -> str:
        return f"{self.name}:{self.ranks}"


class Starter(NamedTuple):
    """An ``mpiexec`` that was found."""

    path: str
    kind: str  # "hydra", of MPICH and Intel MPI, or "openmpi"
    major: int  # version of Open MPI; 0 for hydra


def parse_hosts(text: str, ranks_each: int) -> list[Host]:
    """Of ``-H``: ``a:4,b:4``; a host without a number gets ``ranks_each``.

    Raises:
        ValueError: No such list; the message has the part that is wrong.
    """
    return _together([_host(part.strip(), ranks_each, "-H") for part in text.split(",")])


def read_hostfile(path: str, ranks_each: int) -> list[Host]:
    """Of ``--hostfile``: a host a line, as ``a``, ``a slots=4`` (Open MPI) or ``a:4`` (MPICH).

    Raises:
        ValueError: The file cannot be read, has no host, or a line that is none of these.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--hostfile {path}: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            hosts.append(_host_of_line(words, ranks_each, f"{path}, line {number}"))
    if not hosts:
        raise InvalidArgumentError(f"--hostfile {path} names no host")
    return _together(hosts)


def _host_of_line(words: list[str], ranks_each: int, where: str) -> Host:
    host = _host(words[0], ranks_each, where)
    for word in words[1:]:
        name, _, number = word.partition("=")
        if name in ("max_slots", "max-slots"):
            continue  # for who asks for more ranks than slots, as nobody does here
        if name != "slots" or ":" in words[0].rpartition("]")[2]:
            raise InvalidArgumentError(
                f"{where}: {word!r} is not understood; the forms are 'a', 'a slots=4' and 'a:4'"
            )
        host = Host(host.name, _count(number, where))
    return host


def _host(text: str, ranks_each: int, where: str) -> Host:
    name, colon, number = text, "", ""
    if ":" in text.rpartition("]")[2]:
        name, colon, number = text.rpartition(":")
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{where}: {text!r} is no host; the forms are 'a' and 'a:4', with brackets round an "
            "IPv6 address"
        )
    return Host(name, _count(number, where) if colon else ranks_each)


def _count(text: str, where: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < 1:
        raise InvalidArgumentError(f"{where}: {text!r} is no number of ranks")
    return int(text)


def _together(hosts: list[Host]) -> list[Host]:
    """A host that is named again gets more ranks, as with every mpiexec."""
    ranks: dict[str, int] = {}
    for host in hosts:
        ranks[host.name] = ranks.get(host.name, 0) + host.ranks
    return [Host(name, count) for name, count in ranks.items()]


def find_starter() -> Starter:
    """The first ``mpiexec`` of PATH, or the one beside this Python.

    Raises:
        ciuic.UnavailableError: There is none that is known; says how to get one.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    path = shutil.which("mpiexec") or (beside if os.access(beside, os.X_OK) else None)
    if path is None:
        raise UnavailableError(
            "ranks of several hosts are started over ssh by mpiexec, and there is none on PATH or "
            f"beside {sys.executable}: `pip install mpich`, `apt-get install mpich`, or the site's "
            "own, on every host at the same place; or start torchrun on each host (--nnodes)"
        )
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{path} --version: {error}") from None
    return _starter_of(path, done.stdout)


def _starter_of(path: str, version: str) -> Starter:
    if "HYDRA" in version or "Intel(R) MPI" in version:
        return Starter(path, "hydra", 0)
    found = re.search(r"\(?Open MPI\)? (\d+)", version)
    if found:
        return Starter(path, "openmpi", int(found[1]))
    raise UnavailableError(
        f"{path} is neither Open MPI's nor of MPICH's family, as far as its --version says "
        f"({version.strip().partition(chr(10))[0]!r})"
    )


def command_for(
    starter: Starter,
    hosts: Sequence[Host],
    program: Sequence[str],
    environment: Mapping[str, str],
    *,
    prefix: bool,
    as_root: bool,
) -> list[str]:
    """What starts ``program`` on the hosts, ranks in the order of the list."""
    ranks = str(sum(host.ranks for host in hosts))
    names = ",".join(map(str, hosts))
    if starter.kind == "hydra":
        command = [starter.path, "-bootstrap", "ssh", "-hosts", names, "-n", ranks]
        return [*command, *(["-prepend-rank"] if prefix else []), *program]
    new = starter.major >= 5
    command = [starter.path, *(["--prtemca", "plm", "ssh"] if new else ["--mca", "plm", "rsh"])]
    command += ["--host", names, "-n", ranks]
    command += ["--allow-run-as-root"] if as_root else []
    if prefix:
        command += ["--output", "rank"] if new else ["--tag-output"]
    for name in sorted(environment):
        if _HANDED_ON.fullmatch(name):
            command += ["-x", name]
    return [*command, *program]


def become_mpiexec(hosts: Sequence[Host], program: Sequence[str], *, prefix: bool) -> NoReturn:
    """mpiexec takes this process over.

    Raises:
        ciuic.UnavailableError: No mpiexec, or no ssh.
    """
    starter = find_starter()
    if shutil.which("ssh") is None:
        raise UnavailableError(
            "ranks of several hosts are started over ssh, and there is no ssh on PATH (apt-get "
            "install openssh-client)"
        )
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_PREFIXES) and name not in _RANKS
    }
    environment.setdefault("PYTHONUNBUFFERED", "1")
    command = command_for(
        starter, hosts, program, environment, prefix=prefix, as_root=os.geteuid() == 0
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(starter.path, command, environment)
