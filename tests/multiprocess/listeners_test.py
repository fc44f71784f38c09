# SPDX-License-Identifier: Apache-2.0
"""What listens where during a join, as other network namespaces see it. Needs root and ``ip``."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from network_namespaces import Namespaces


class Networks(Namespaces):
    """Host 0 on two networks: with host 1 on the first, with host 2 on the second."""

    def __init__(self) -> None:
        super().__init__(3)
        self.networks = [f"10.232.{self.subnet}", f"10.233.{self.subnet}"]
        self.interfaces = [f"cl{self.word}{number}a"[:15] for number in range(2)]  # of host 0
        for number, network in enumerate(self.networks):
            here, there = self.interfaces[number], f"cl{self.word}{number}b"[:15]
            self.lay_cable(0, here, number + 1, there)
            self.plug_in(0, here, f"{network}.1/24")
            self.plug_in(number + 1, there, f"{network}.2/24")


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks()
    yield made
    made.remove()


def listening(networks: Networks) -> list[tuple[str, int]]:
    """(address, port) of every TCP socket that listens on host 0."""
    show = ["ss", "--listening", "--tcp", "--numeric", "--no-header"]
    found = subprocess.run(
        [*networks.inside(0), *show], check=True, capture_output=True, text=True
    ).stdout
    local = [line.split()[3] for line in found.splitlines()]
    return [(text.rpartition(":")[0].strip("[]"), int(text.rpartition(":")[2])) for text in local]


def abstract_names(networks: Networks) -> list[str]:
    """Of host 0's abstract Unix sockets."""
    found = subprocess.run(
        [*networks.inside(0), "cat", "/proc/net/unix"], check=True, capture_output=True, text=True
    ).stdout
    return [word for word in found.split() if word.startswith("@ciuic-")]


def scan(networks: Networks, host: int, address: str, program: Path) -> dict[int, int]:
    """Ports of the address that answer to `host`, and how many bytes they say to a stranger."""
    command = [*networks.inside(host), sys.executable, str(program), address]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {int(port): int(heard) for _, port, heard in lines}


@pytest.mark.slow
def test_only_chosen_addresses_answer_and_say_nothing(
    networks: Networks, processes, programs: Path
) -> None:
    chosen, other = (f"{network}.1" for network in networks.networks)
    server = processes.start("store_server.py", chosen, variables={}, prefix=networks.inside(0))
    assert server.stdout is not None
    url, secret = server.stdout.readline().split()

    def start(rank: int, **more: str) -> "subprocess.Popen[str]":
        ranks = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
        return processes.start(
            "join.py",
            json.dumps({"timeout_s": 200}),
            variables={"CIUIC_STORE": url, "CIUIC_SECRET": secret, **ranks, **more},
            prefix=networks.inside(rank),
        )

    ranks = [start(0, CIUIC_SOCKET_IFNAME=networks.interfaces[0])]
    # The store's port, rank 0's own, and the one that is there for the join alone.
    while sum(address == chosen for address, _ in listening(networks)) < 3:
        assert ranks[0].poll() is None, "rank 0 has ended"
    found = {address.partition("%")[0] for address, _ in listening(networks)}
    link_local = {address for address in found if address.startswith("fe80:")}
    assert found - link_local <= {chosen, "127.0.0.1", "::1"}
    assert chosen in found

    # Host 2 is on another network of host 0's: nothing answers there.
    assert scan(networks, 2, other, programs / "port_scan.py") == {}
    # To host 1 the chosen address answers, and says no word before the proof.
    seen = scan(networks, 1, chosen, programs / "port_scan.py")
    assert set(seen) == {port for address, port in listening(networks) if address == chosen}
    assert set(seen.values()) == {0}
    assert abstract_names(networks)
    for name in abstract_names(networks):
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0' + {name[1:]!r})"
        outside = subprocess.run(
            [*networks.inside(1), sys.executable, "-c", connect], capture_output=True, text=True
        )
        assert "ConnectionRefusedError" in outside.stderr

    ranks.append(start(1))
    for rank, process in enumerate(ranks):
        output = process.communicate(timeout=240)[0]
        assert output.strip().splitlines()[-1] == f"joined {rank} 2", output
