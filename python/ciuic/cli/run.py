# SPDX-License-Identifier: Apache-2.0
"""``ciuic run``: the words that it takes; torchrun's spellings too."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, Any, NoReturn

import typer

from ciuic.cli.errors import errors_as_lines
from ciuic.errors import InvalidArgumentError, UnavailableError


def _torchruns(name: str) -> Any:
    """An option that is handed on to torchrun, in both of its spellings."""
    return typer.Option(f"--{name}", f"--{name.replace('-', '_')}", help="torchrun's.")


_Program = Annotated[
    list[str],
    typer.Argument(help="A Python file, or an executable; then its arguments.", metavar="PROG …"),
]
_Nproc = Annotated[
    str,
    typer.Option(
        "-n",
        "--nproc-per-node",
        "--nproc_per_node",
        help="Ranks on this machine: a number, or 'auto' for one a core.",
    ),
]
_Replace = Annotated[
    str | None,
    typer.Option(
        "--replace",
        metavar="gloo",
        help="Groups of torch.distributed that ask for this backend get Ciuic; the program stays "
        "as it is.",
    ),
]
_Hosts = Annotated[
    str | None,
    typer.Option(
        "-H",
        "--hosts",
        metavar="a:4,b:4",
        help="Ranks on these machines, over ssh by mpiexec; -n each where no number is.",
    ),
]
_Hostfile = Annotated[
    str | None,
    typer.Option(
        "--hostfile", metavar="FILE", help="The same, a host a line: 'a', 'a slots=4', 'a:4'."
    ),
]


def run(
    program: _Program,
    nproc: _Nproc = "auto",
    init: Annotated[
        bool,
        typer.Option("--init", help="`import ciuic` initialises torch.distributed, if nobody has."),
    ] = False,
    replace: _Replace = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="PROG is a Python module, as in python -m.")
    ] = False,
    no_python: Annotated[
        bool,
        typer.Option(
            "--no-python", "--no_python", help="PROG is an executable, whatever it is called."
        ),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Do not mark each line of output with its rank.")
    ] = False,
    hosts: _Hosts = None,
    hostfile: _Hostfile = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="As torchrun's; one machine is standalone.")
    ] = False,
    nnodes: Annotated[
        str, typer.Option("--nnodes", help="More than 1: torchrun takes over, and these:")
    ] = "1",
    node_rank: Annotated[str | None, _torchruns("node-rank")] = None,
    master_addr: Annotated[str | None, _torchruns("master-addr")] = None,
    master_port: Annotated[str | None, _torchruns("master-port")] = None,
    rdzv_backend: Annotated[str | None, _torchruns("rdzv-backend")] = None,
    rdzv_endpoint: Annotated[str | None, _torchruns("rdzv-endpoint")] = None,
    rdzv_id: Annotated[str | None, _torchruns("rdzv-id")] = None,
    max_restarts: Annotated[str | None, _torchruns("max-restarts")] = None,
) -> None:
    """Start the ranks of a program, and stay until they have ended.

    The first rank that fails ends the others; its exit code is the command's.
    """
    of_torchrun = {
        "--node_rank": node_rank,
        "--master_addr": master_addr,
        "--master_port": master_port,
        "--rdzv_backend": rdzv_backend,
        "--rdzv_endpoint": rdzv_endpoint,
        "--rdzv_id": rdzv_id,
        "--max_restarts": max_restarts,
    }
    with errors_as_lines("run"):
        _check_hosts(hosts, hostfile, nnodes)
        _ask_to_replace(replace)
        if _most_nodes(nnodes) > 1:
            _become_torchrun(program, nproc, nnodes, init, module, no_python, of_torchrun)
        if not standalone:
            for name, value in of_torchrun.items():
                if value is not None:
                    raise InvalidArgumentError(
                        f"{name} is for several machines: give --nnodes too, or leave it out"
                    )

        command = _command(program, module=module, no_python=no_python)
        if hosts is not None or hostfile is not None:
            _become_mpiexec(hosts, hostfile, nproc, command, init=init, prefix=not raw)

        from ciuic.run.launcher import launch

        code = launch(command, _ranks(nproc), init=init, prefix=not raw)
    raise SystemExit(code)


def _ask_to_replace(backend: str | None) -> None:
    """Asks the ranks, and what they start, by a variable."""
    if backend is None:
        return
    if backend != "gloo":
        raise InvalidArgumentError(f"--replace {backend}: only gloo can be replaced")
    os.environ["CIUIC_REPLACE"] = backend


def _ranks(text: str) -> int:
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"-n {text}: neither a number nor 'auto'") from None


def _most_nodes(text: str) -> int:
    try:
        return int(text.rpartition(":")[2])
    except ValueError:
        raise InvalidArgumentError(f"--nnodes {text}: neither a number nor MIN:MAX") from None


def _command(program: list[str], *, module: bool, no_python: bool) -> list[str]:
    if module:
        return [sys.executable, "-m", *program]
    if program[0].endswith(".py") and not no_python:
        if not os.path.isfile(program[0]):
            raise InvalidArgumentError(f"there is no file {program[0]}")
        return [sys.executable, *program]
    if shutil.which(program[0]) is None:
        raise InvalidArgumentError(
            f"{program[0]} is neither a Python file (*.py) nor an executable that can be found"
        )
    return program


def _check_hosts(hosts: str | None, hostfile: str | None, nnodes: str) -> None:
    if _most_nodes(nnodes) > 1 and (hosts is not None or hostfile is not None):
        raise InvalidArgumentError(
            "--nnodes hands over to torchrun, -H and --hostfile to mpiexec: give one of them"
        )
    if hosts is not None and hostfile is not None:
        raise InvalidArgumentError("-H and --hostfile name the same thing: give one of them")


def _become_mpiexec(
    hosts: str | None,
    hostfile: str | None,
    nproc: str,
    command: list[str],
    *,
    init: bool,
    prefix: bool,
) -> NoReturn:
    """mpiexec takes this process over."""
    from ciuic.run import hosts as of_hosts

    if init:
        raise InvalidArgumentError(
            "--init wants the variables of torchrun, which mpiexec does not set: give --nnodes "
            "instead of -H and --hostfile, or call init_process_group() in the program"
        )
    ranks_each = 1 if nproc == "auto" else _ranks(nproc)
    if ranks_each < 1:
        raise InvalidArgumentError(f"-n {nproc}: at least one rank a host is needed")
    if hostfile is not None:
        listed = of_hosts.read_hostfile(hostfile, ranks_each)
    else:
        listed = of_hosts.parse_hosts(hosts or "", ranks_each)
    of_hosts.become_mpiexec(listed, command, prefix=prefix)


def _become_torchrun(
    program: list[str],
    nproc: str,
    nnodes: str,
    init: bool,
    module: bool,
    no_python: bool,
    options: dict[str, str | None],
) -> NoReturn:
    """torchrun takes this process over, with the same arguments."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            "several machines are started by torchrun, and torch is not installed: install it, or "
            "start the ranks with mpiexec or srun"
        )
    command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nnodes}"]
    command += [f"--nproc_per_node={nproc}"]
    command += [f"{name}={value}" for name, value in options.items() if value is not None]
    if module:
        command.append("--module")
    elif no_python or not program[0].endswith(".py"):
        command.append("--no_python")
    if init:
        os.environ["CIUIC_INIT"] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, [*command, *program])
