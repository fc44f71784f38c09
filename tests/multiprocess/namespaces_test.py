# SPDX-License-Identifier: Apache-2.0
"""Two hosts of two ranks, as two network namespaces with a cable between them.

Shared memory inside each, TCP across. Needs root and ``ip``.
"""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest


class Hosts:
    """Two namespaces, ``10.231.x.1`` and ``10.231.x.2``."""

    def __init__(self) -> None:
        word = f"{os.getpid():x}{secrets.token_hex(1)}"
        self.names = [f"ciuic-{word}-a", f"ciuic-{word}-b"]
        subnet = os.getpid() % 250
        self.addresses = [f"10.231.{subnet}.1", f"10.231.{subnet}.2"]
        cables = self.cables = [f"cu{word}a"[:15], f"cu{word}b"[:15]]
        for name in self.names:
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "set", "lo", "up")
        first, second = self.names
        self._ip(
            *("-n", first, "link", "add", cables[0], "type", "veth"),
            *("peer", "name", cables[1], "netns", second),
        )
        for name, cable, address in zip(self.names, cables, self.addresses, strict=True):
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            self._ip("-n", name, "link", "set", cable, "up")

    def inside(self, host: int) -> list[str]:
        """What to put before a command."""
        return ["ip", "netns", "exec", self.names[host]]

    def pull_cable(self) -> None:
        """From here on nothing passes, and nobody is told."""
        self._ip("-n", self.names[0], "link", "set", self.cables[0], "down")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def _ip(self, *words: str) -> None:
        try:
            subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            self.remove()
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip (iproute2)")
    made = Hosts()
    yield made
    made.remove()


def start_two_hosts_of_two(hosts: Hosts, processes, program: str, timeout_s: float):
    server = processes.start(
        "store_server.py", hosts.addresses[0], variables={}, prefix=hosts.inside(0)
    )
    assert server.stdout is not None
    url, secret = server.stdout.readline().split()
    return [
        processes.start(
            program,
            json.dumps({"timeout_s": timeout_s}),
            variables={
                "CIUIC_STORE": url,
                "CIUIC_SECRET": secret,
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "LOCAL_RANK": str(rank % 2),
            },
            prefix=hosts.inside(rank // 2),
        )
        for rank in range(4)
    ]


@pytest.mark.slow
def test_two_hosts_of_two(hosts: Hosts, processes) -> None:
    ranks = start_two_hosts_of_two(hosts, processes, "join.py", timeout_s=60)
    outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    for rank, output in enumerate(outputs):
        lines = output.strip().splitlines()
        assert lines[-1] == f"joined {rank} 4", output
        described = json.loads(lines[-2])
        assert described["hosts"] == 2
        assert described["layout"] in ("2+2", "2x2")
        assert sorted(described["transports"]) == ["shm", "tcp"]


@pytest.mark.slow
def test_a_pulled_cable_loses_the_other_host(hosts: Hosts, processes) -> None:
    """No connection ends, so that only silence tells."""
    ranks = start_two_hosts_of_two(hosts, processes, "until_error.py", timeout_s=6)
    for rank in ranks:
        while (line := rank.stdout.readline()) != "looping\n":
            assert line, "it has ended"
    hosts.pull_cable()
    for rank, process in enumerate(ranks):
        last = process.communicate(timeout=240)[0].strip().splitlines()[-1]
        others = ("rank 2 (", "rank 3 (") if rank < 2 else ("rank 0 (",)
        assert last.startswith("PeerLostError: "), last
        assert any(other in last for other in others), last
        assert "silent" in last, last
