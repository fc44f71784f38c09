# SPDX-License-Identifier: Apache-2.0
"""Joins that go well by every way to meet, and joins that cannot: the same clear error for all."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 240


def last_lines(outputs: list[str]) -> list[str]:
    return [output.strip().splitlines()[-1] for output in outputs]


def description(output: str) -> dict:
    return json.loads(output.strip().splitlines()[-2])


# ---- ways to meet ----


def test_by_file(processes, tmp_path: Path) -> None:
    for rank in range(3):
        arguments = {"world_size": 3, "rank": rank, "store": f"file://{tmp_path}/store"}
        processes.start("join.py", json.dumps(arguments), variables={})
    assert sorted(last_lines(processes.outputs())) == [f"joined {r} 3" for r in range(3)]


def test_by_address_and_secret(processes, job) -> None:
    made = job(2)
    for rank in range(2):
        variables = {k: v for k, v in made.variables(rank).items() if k.startswith("CIUIC_")}
        arguments = {"world_size": 2, "rank": rank}
        processes.start("join.py", json.dumps(arguments), variables=variables)
    outputs = processes.outputs()
    assert sorted(last_lines(outputs)) == ["joined 0 2", "joined 1 2"]
    assert description(outputs[0])["store_is_private"] is True


def test_by_torch_env(processes) -> None:
    """MASTER_ADDR and MASTER_PORT without CIUIC_STORE: torch's store."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1])}
        for rank in range(2):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            processes.start("join.py", variables={**ranks, **address})
        outputs = processes.outputs()
    assert sorted(last_lines(outputs)) == ["joined 0 2", "joined 1 2"], outputs
    assert description(outputs[0])["store_is_private"] is False


@pytest.mark.slow
def test_torchrun(programs, environment) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    result = subprocess.run(
        [*command, str(programs / "join.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr
    assert "joined 0 2" in result.stdout
    assert "joined 1 2" in result.stdout


@pytest.mark.slow
def test_torchrun_restarts_workers_on_the_same_store(programs, environment) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    result = subprocess.run(
        [*command, "--max-restarts=2", str(programs / "restarted.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("all good in life 2") == 2, result.stdout


def test_closing_and_joining_again(ciuic_run) -> None:
    result = ciuic_run(2, "rejoined.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2


def _mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec (pip install mpich)")
    text = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
    if "HYDRA" not in text:
        pytest.skip(f"{found} is not MPICH's")
    return found


def test_mpiexec(programs, environment) -> None:
    result = subprocess.run(
        [_mpiexec(), "-n", "3", sys.executable, str(programs / "join.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(3):
        assert f"joined {rank} 3" in result.stdout


def test_all_ports_are_of_the_range(ciuic_run) -> None:
    """The launcher's too: the store's, and the one for torch's."""
    result = ciuic_run(
        2, "listening_ports.py", CIUIC_PORT_RANGE="21000-21999", CIUIC_TRANSPORT="tcp"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line.split()[2:] for line in result.stdout.splitlines() if " ports " in line]
    assert len(lines) == 2, result.stdout
    for port in (int(word) for line in lines for word in line):
        assert 21000 <= port <= 21999


def test_a_range_without_a_free_port_is_named(ciuic_run) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = ciuic_run(2, "join.py", CIUIC_PORT_RANGE=f"{port}-{port}")
    assert result.returncode != 0
    assert f"CIUIC_PORT_RANGE={port}-{port} is free at 127.0.0.1" in result.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CIUIC_SOCKET_IFNAME", "nowhere", "no interface or address of this host is named by it"),
        ("CIUIC_SOCKET_IFNAME", "10.0.0.0/99", "the forms are =eth0 (exact name)"),
        ("CIUIC_ADVERTISE_ADDRESS", "1.2.3.4:30000", "CIUIC_PORT_RANGE, which is not set"),
        ("CIUIC_PORT_RANGE", "20000", "allowed: FIRST-LAST"),
    ],
)
def test_settings_of_the_network_that_are_wrong(
    processes, tmp_path: Path, name: str, value: str, message: str
) -> None:
    arguments = {"world_size": 2, "rank": 0, "store": f"file://{tmp_path}/store"}
    processes.start("join.py", json.dumps(arguments), variables={name: value})
    (last,) = last_lines(processes.outputs())
    assert last.startswith("InvalidArgumentError: "), last
    assert message in last
    if value == "nowhere":
        assert "there are: " in last and "lo (127.0.0.1" in last


def test_torch_distributed(ciuic_run) -> None:
    result = ciuic_run(2, "initialised.py", options=["--init"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2


def test_init_without_the_option(ciuic_run) -> None:
    result = ciuic_run(2, "not_initialised.py")
    assert result.returncode == 0, result.stdout + result.stderr


# ---- what cannot be ----


def join_each(processes, made, arguments: list[dict], variables: list[dict] | None = None):
    for index, given in enumerate(arguments):
        own = {k: v for k, v in made.variables(index).items() if k.startswith("CIUIC_")}
        own |= (variables or [{}] * len(arguments))[index]
        given = {"timeout_s": 20, **given}
        processes.start("join.py", json.dumps(given), variables=own)
    return last_lines(processes.outputs())


def test_world_sizes_differ(processes, job) -> None:
    lines = join_each(
        processes, job(2), [{"world_size": 2, "rank": 0}, {"world_size": 3, "rank": 1}]
    )
    assert all(line.startswith("MismatchError") for line in lines), lines
    assert all("2" in line and "3" in line for line in lines), lines


def test_a_rank_twice(processes, job) -> None:
    """As many processes as ranks, but two say that they are rank 1."""
    lines = join_each(processes, job(3), [{"world_size": 3, "rank": rank} for rank in (0, 1, 1)])
    assert all(line.startswith("MismatchError") for line in lines), lines
    assert all("rank 1" in line for line in lines), lines


def test_a_peer_that_never_comes(processes, job) -> None:
    lines = join_each(
        processes,
        job(3),
        [
            {"world_size": 3, "rank": 0, "timeout_s": 1.5},
            {"world_size": 3, "rank": 1, "timeout_s": 1.5},
        ],
    )
    assert all(line.startswith("TimeoutError") for line in lines), lines
    assert all("2" in line for line in lines), lines


def test_another_secret(processes, job) -> None:
    lines = join_each(
        processes,
        job(2),
        [{"world_size": 2, "rank": 0, "timeout_s": 3}, {"world_size": 2, "rank": 1}],
        [{}, {"CIUIC_SECRET": "ab" * 32}],
    )
    assert lines[1].startswith("SecretError"), lines
    assert lines[0].startswith("TimeoutError"), lines  # to rank 0, nobody came


def test_secret_that_is_none(processes, job) -> None:
    lines = join_each(
        processes, job(2), [{"world_size": 2, "rank": 0}], [{"CIUIC_SECRET": "not hex"}]
    )
    assert "CIUIC_SECRET" in lines[0], lines
    assert "not hex" not in lines[0], lines


def test_transport_that_cannot_be(processes, job) -> None:
    lines = join_each(
        processes,
        job(2),
        [{"world_size": 2, "rank": r} for r in range(2)],
        [{"CIUIC_TRANSPORT": "rdma"}] * 2,
    )
    assert all("rdma" in line and "Error" in line for line in lines), lines


def test_nobody_serves_the_store(processes) -> None:
    with socket.socket() as holder:  # bound, but nobody listens
        holder.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        arguments = {"world_size": 2, "rank": 1, "store": url, "timeout_s": 1}
        processes.start("join.py", json.dumps(arguments), variables={"CIUIC_SECRET": "ab" * 32})
        (line,) = last_lines(processes.outputs())
    assert line.startswith("TimeoutError"), line
    assert "127.0.0.1" in line, line


def test_master_port_in_use(processes) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        arguments = {"timeout_s": 5}
        processes.start("join.py", json.dumps(arguments), variables={**ranks, **address})
        (line,) = last_lines(processes.outputs())
    assert line.startswith("ResourceError"), line
    assert str(port) in line, line


@pytest.mark.parametrize("way", ["python", "native"])
def test_interrupt_ends_a_join(processes, job, way: str) -> None:

    made = job(2)
    variables = {k: v for k, v in made.variables(0).items() if k.startswith("CIUIC_")}
    rank = processes.start("interrupted_join.py", way, variables=variables)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "joining\n"
    os.kill(rank.pid, signal.SIGINT)
    assert rank.communicate(timeout=TIMEOUT_S)[0] == "interrupted\n"
    assert rank.returncode == 0
