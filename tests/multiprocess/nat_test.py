# SPDX-License-Identifier: Apache-2.0
"""A host behind a NAT, that others reach only where the NAT hands on. Needs root, ip and nft."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from network_namespaces import Namespaces

ROUTER = 2
INSIDE_FIRST, OUTSIDE_FIRST, PORTS = 20000, 30000, 40


class BehindNat(Namespaces):
    """Host 0 inside, host 1 outside, and between them a router that translates."""

    def __init__(self) -> None:
        super().__init__(3)
        self.inside_net, self.outside_net = f"10.240.{self.subnet}", f"10.241.{self.subnet}"
        self.public = f"{self.outside_net}.1"
        for host, network in enumerate((self.inside_net, self.outside_net)):
            here, at_router = f"cn{self.word}{host}a"[:15], f"cn{self.word}{host}b"[:15]
            self.lay_cable(host, here, ROUTER, at_router)
            self.plug_in(host, here, f"{network}.2/24")
            self.plug_in(ROUTER, at_router, f"{network}.1/24")
        self.ip(0, "route", "add", "default", "via", f"{self.inside_net}.1")
        self.run(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def translate(self, outside_first: int) -> None:
        """Ports of the router's outer address lead inside; what comes from inside leaves as its."""
        ports = ", ".join(f"{outside_first + i} : {INSIDE_FIRST + i}" for i in range(PORTS))
        last = outside_first + PORTS - 1
        rules = f"""
            table ip nat {{
                chain before {{
                    type nat hook prerouting priority -100;
                    ip daddr {self.public} tcp dport {outside_first}-{last} \\
                        dnat ip to {self.inside_net}.2 : tcp dport map {{ {ports} }}
                }}
                chain after {{
                    type nat hook postrouting priority 100;
                    ip saddr {self.inside_net}.0/24 ip daddr != {self.inside_net}.0/24 masquerade
                }}
            }}"""
        done = subprocess.run(
            [*self.inside(ROUTER), "nft", "-f", "-"], input=rules, capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"no NAT by nft here: {done.stderr.strip()}")


@pytest.fixture
def nat() -> Iterator[BehindNat]:
    if shutil.which("nft") is None:
        pytest.skip("a NAT of our own needs the command nft")
    made = BehindNat()
    yield made
    made.remove()


def start(nat: BehindNat, processes, store: Path, of_host_0: dict, timeout_s: float = 60) -> None:
    """Two ranks a host; rank 0 is behind the NAT."""
    for rank in range(4):
        processes.start(
            "join.py",
            json.dumps({"world_size": 4, "rank": rank, "timeout_s": timeout_s}),
            variables={"CIUIC_STORE": f"file://{store}", **(of_host_0 if rank < 2 else {})},
            prefix=nat.inside(rank // 2),
        )


@pytest.mark.parametrize("translated", [False, True], ids=["ports kept", "ports translated"])
def test_an_advertised_address(nat: BehindNat, processes, tmp_path: Path, translated: bool) -> None:
    first = OUTSIDE_FIRST if translated else INSIDE_FIRST
    nat.translate(first)
    advertised = {
        "CIUIC_PORT_RANGE": f"{INSIDE_FIRST}-{INSIDE_FIRST + PORTS - 1}",
        "CIUIC_ADVERTISE_ADDRESS": f"{nat.public}:{first}" if translated else nat.public,
    }
    start(nat, processes, tmp_path / "store", advertised)
    for rank, output in enumerate(processes.outputs()):
        lines = output.strip().splitlines()
        assert lines[-1] == f"joined {rank} 4", output
        described = json.loads(lines[-2])
        assert described["hosts"] == 2
        assert sorted(described["transports"]) == ["shm", "tcp"]


def test_without_one_the_error_says_what_was_tried(nat, processes, tmp_path: Path) -> None:
    nat.translate(INSIDE_FIRST)
    start(nat, processes, tmp_path / "store", {}, timeout_s=3)
    outputs = processes.outputs()
    for output in outputs[2:]:
        last = output.strip().splitlines()[-1]
        assert last.startswith("TimeoutError: "), last
        assert f"{nat.inside_net}.2:" in last, last
