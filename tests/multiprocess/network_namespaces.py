# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces of this machine, and cables between them. Needs root and ``ip``."""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

import pytest


class Namespaces:
    """Namespaces with a loopback interface each; they are there until ``remove()``.

    Skips the test where the machine does not let it make them, and then leaves nothing behind.

    Attributes:
        names: Of the namespaces.
        word: What is in all of them, for the names of interfaces: of no other test that runs.
        subnet: A number for the networks' addresses, likewise.
    """

    def __init__(self, count: int) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and the command ip (iproute2)")
        self.word = f"{os.getpid():x}{secrets.token_hex(1)}"
        self.subnet = os.getpid() % 250
        self.names = [f"ciuic-{self.word}-{host}" for host in range(count)]
        for host, name in enumerate(self.names):
            self._ip("netns", "add", name)
            self.ip(host, "link", "set", "lo", "up")

    def inside(self, host: int) -> list[str]:
        """What to put before a command."""
        return ["ip", "netns", "exec", self.names[host]]

    def run(self, host: int, *words: str) -> None:
        subprocess.run([*self.inside(host), *words], check=True, capture_output=True)

    def ip(self, host: int, *words: str) -> None:
        """``ip`` with these words, inside a namespace."""
        self._ip("-n", self.names[host], *words)

    def lay_cable(self, host: int, interface: str, peer: int, peers: str) -> None:
        """Its two ends are interfaces of those names; they are down and have no address."""
        ends = ("link", "add", interface, "type", "veth", "peer", "name", peers)
        self.ip(host, *ends, "netns", self.names[peer])

    def plug_in(self, host: int, interface: str, address: str) -> None:
        self.ip(host, "address", "add", address, "dev", interface)
        self.ip(host, "link", "set", interface, "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)

    def _ip(self, *words: str) -> None:
        try:
            subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            self.remove()
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
