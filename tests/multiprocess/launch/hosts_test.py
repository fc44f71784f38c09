# SPDX-License-Identifier: Apache-2.0
"""``ciuic run -H`` and ``--hostfile``: lists of hosts, and ranks over an ssh that stays here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ciuic.errors import InvalidArgumentError, UnavailableError
from ciuic.run import hosts as of_hosts
from ciuic.run.hosts import Host, Starter, parse_hosts, read_hostfile

TIMEOUT_S = 120

# Runs here what it was to run there, as another host.
_SSH = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
echo "$1" >>"$FAKE_SSH_LOG"
CIUIC_HOST_ID=$1
export CIUIC_HOST_ID
shift
exec sh -c "$*"
"""


# ---- lists ----


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [Host("a", 2)]),
        ("a:4,b:3", [Host("a", 4), Host("b", 3)]),
        ("a, b:1", [Host("a", 2), Host("b", 1)]),
        ("a:1,b:1,a:2", [Host("a", 3), Host("b", 1)]),
        ("node-1.example.org:8", [Host("node-1.example.org", 8)]),
        (
            "10.0.0.1:8,[fd00::1]:2,[fd00::2]",
            [Host("10.0.0.1", 8), Host("[fd00::1]", 2), Host("[fd00::2]", 2)],
        ),
    ],
)
def test_hosts(text: str, hosts: list[Host]) -> None:
    assert parse_hosts(text, 2) == hosts


@pytest.mark.parametrize(
    "text",
    ["", "a,", "a:", "a:0", "a:-1", "a:x", ":4", "a b", "-x", "--host", "fd00::1", "a;id", "$a"],
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="-H: '"):
        parse_hosts(text, 1)


def test_hostfiles(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# Open MPI's\na slots=4\nb slots=2 max_slots=8  # twice\n\n# MPICH's\nc:3\nd\na:1\n"
    )
    expected = [Host("a", 5), Host("b", 2), Host("c", 3), Host("d", 2)]
    assert read_hostfile(str(file), 2) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a slots=", "line 2: '' is no number"),
        ("a slots=four", "line 2: 'four' is no number"),
        ("a cpus=4", "line 2: 'cpus=4' is not understood"),
        ("a:4 slots=4", "line 2: 'slots=4' is not understood"),
        ("a b", "line 2: 'b' is not understood"),
        ("a,b", "line 2: 'a,b' is no host"),
    ],
)
def test_lines_that_are_none(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"good\n{line}\n")
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        read_hostfile(str(file), 1)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nobody\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("empty", "binary", "absent"):
        with pytest.raises(InvalidArgumentError, match=f"--hostfile .*{name}"):
            read_hostfile(str(tmp_path / name), 1)


# ---- mpiexec ----


@pytest.mark.parametrize(
    ("version", "kind", "major"),
    [
        ("HYDRA build details:\n    Version: 5.0.2\n", "hydra", 0),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929\n", "hydra", 0),
        ("mpiexec (Open MPI) 5.0.11\n", "openmpi", 5),
        ("mpirun (Open MPI) 4.1.4\n", "openmpi", 4),
    ],
)
def test_kinds_of_mpiexec(version: str, kind: str, major: int) -> None:
    assert of_hosts._starter_of("mpiexec", version) == Starter("mpiexec", kind, major)


def test_an_mpiexec_of_another_kind() -> None:
    with pytest.raises(UnavailableError, match=r"neither Open MPI's.*'OpenRTE 1\.2'"):
        of_hosts._starter_of("/usr/bin/mpiexec", "OpenRTE 1.2\nand more\n")


def test_commands() -> None:
    listed = [Host("a", 4), Host("b", 2)]
    environment = {"CIUIC_LOG": "info", "PATH": "/bin", "HOME": "/root", "PYTHONPATH": "/x"}

    def words(kind: str, major: int, prefix: bool = True, as_root: bool = False) -> str:
        command = of_hosts.command_for(
            Starter("mpiexec", kind, major),
            *(listed, ["prog", "-x", "1"], environment),
            prefix=prefix,
            as_root=as_root,
        )
        return " ".join(command)

    assert words("hydra", 0) == (
        "mpiexec -bootstrap ssh -hosts a:4,b:2 -n 6 -prepend-rank prog -x 1"
    )
    handed_on = "-x CIUIC_LOG -x PATH -x PYTHONPATH prog -x 1"
    assert words("openmpi", 5, as_root=True) == (
        "mpiexec --prtemca plm ssh --host a:4,b:2 -n 6 --allow-run-as-root --output rank "
        + handed_on
    )
    assert words("openmpi", 4, prefix=False) == (
        "mpiexec --mca plm rsh --host a:4,b:2 -n 6 " + handed_on
    )


# ---- for real ----


@pytest.fixture
def run_on_hosts(tmp_path: Path, environment, programs: Path, or_skip):
    """``ciuic run`` with these options, by the mpiexec of that name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    ssh = folder / "ssh"
    ssh.write_text(_SSH)
    ssh.chmod(0o755)
    log = tmp_path / "ssh.log"
    places = {"mpich": Path(sys.prefix) / "bin", "openmpi": Path(sys.prefix) / "openmpi" / "bin"}

    def run(name: str, *options: str):
        if not (places[name] / "mpiexec").exists():
            or_skip(f"no {places[name]}/mpiexec (tools/setup.sh)")
        usual = f"{folder}:{places[name]}:{os.environ['PATH']}"
        result = subprocess.run(
            [sys.executable, "-m", "ciuic", "run", *options, "--", str(programs / "met.py")],
            env=environment(
                **{"PATH": usual, "FAKE_SSH_LOG": str(log), "TMPDIR": "/tmp"},
                # An outer launcher's must not reach the ranks.
                **{"RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "7", "PMI_RANK": "7"},
            ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        called = sorted(log.read_text().split()) if log.exists() else []
        return result, called

    return run


def met(output: str) -> list[dict]:
    found = [json.loads(line[line.index("{") :]) for line in output.splitlines() if "{" in line]
    return sorted(found, key=lambda each: each["rank"])


@pytest.mark.parametrize(("name", "store"), [("mpich", "PMI-1"), ("openmpi", "PMIx")])
def test_two_hosts_over_ssh(run_on_hosts, name: str, store: str) -> None:
    result, called = run_on_hosts(name, "-H", "hosta:2,hostb:1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert called == ["hosta", "hostb"]
    each = met(result.stdout)
    assert [one["rank"] for one in each] == [0, 1, 2]
    assert [one["local_rank"] for one in each] == [0, 1, 0]
    assert {(one["ranks"], one["hosts"], one["store"]) for one in each} == {(3, 2, store)}
    assert each[0]["transports"] == ["shm", "tcp"]
    assert each[2]["transports"] == ["tcp"]
    assert all(line.startswith("[") for line in result.stdout.splitlines()), result.stdout


def test_a_hostfile(run_on_hosts, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("hosta slots=1\nhostb\n")
    result, called = run_on_hosts(
        "mpich", "--hostfile", str(tmp_path / "hosts"), "-n", "2", "--raw"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert called == ["hosta", "hostb"]
    assert [one["local_rank"] for one in met(result.stdout)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-H", "a:x"], "'x' is no number of ranks"),
        (["-H", "a", "--hostfile", "b"], "give one of them"),
        (["-H", "a", "--nnodes", "2"], "give one of them"),
        (["-H", "a", "--init"], "--init wants the variables of torchrun"),
        (["-H", "a", "-n", "0"], "at least one rank"),
    ],
)
def test_what_cannot_be(run_on_hosts, options: list[str], message: str) -> None:
    result, called = run_on_hosts("mpich", *options)
    assert result.returncode != 0
    assert message in result.stderr
    assert called == []


def test_without_mpiexec_or_ssh_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UnavailableError, match=r"pip install mpich.*apt-get install mpich"):
        of_hosts.become_mpiexec([Host("a", 1)], ["prog"], prefix=True)
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text("#!/bin/sh\necho HYDRA build details\n")
    mpiexec.chmod(0o755)
    with pytest.raises(UnavailableError, match="openssh-client"):
        of_hosts.become_mpiexec([Host("a", 1)], ["prog"], prefix=True)
