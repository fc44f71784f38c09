# SPDX-License-Identifier: Apache-2.0
"""The transports that are tested, and what a group over each must be like."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from ciuic.selftest.cases import RANKS

_IPV4, _IPV6 = "127.0.0.1", "::1"


class Route(NamedTuple):
    """A way for the ranks to reach each other.

    Attributes:
        name: The first word of its cases' names.
        means: In words.
        variables: Settings of all ranks.
        hosts: How many hosts the ranks pretend to be on; ranks in order.
        demanded: What ``describe()`` must say then.
    """

    name: str
    means: str
    variables: Mapping[str, str]
    hosts: int
    demanded: Mapping[str, Any]

    def variables_of_rank(self, rank: int) -> dict[str, str]:
        """Settings of one rank alone."""
        if self.hosts == 1:
            return {}
        return {"CIUIC_HOST_ID": f"selftest-{rank * self.hosts // RANKS}"}


def _tcp(name: str, means: str, address: str, tls: bool) -> Route:
    variables = {"CIUIC_TRANSPORT": "tcp", "CIUIC_SOCKET_IFNAME": address}
    if tls:
        variables["CIUIC_TLS"] = "1"
    return Route(name, means, variables, 1, {"transports": ["tcp"], "tls": tls})


ROUTES = (
    Route(
        "shm",
        "shared memory",
        {"CIUIC_TRANSPORT": "shm"},
        1,
        {"transports": ["shm"], "layout": f"{RANKS}"},
    ),
    _tcp("tcp", "TCP over IPv4", _IPV4, tls=False),
    _tcp("tcp6", "TCP over IPv6", _IPV6, tls=False),
    _tcp("tls", "TCP with TLS 1.3", _IPV4, tls=True),
    # Finds everything by itself, as a job does: addresses, and who shares a host.
    Route(
        "mixed", "two hosts, TCP between", {}, 2, {"transports": ["shm", "tcp"], "layout": "2x2"}
    ),
    Route("rdma", "RDMA", {"CIUIC_TRANSPORT": "rdma"}, 1, {"transports": ["rdma"]}),
)


def why_not(route: Route) -> str:
    """Why this machine cannot offer it; empty where that is seen only when ranks try."""
    if route.name != "tcp6":
        return ""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((_IPV6, 0))
    except OSError as error:
        return f"no IPv6 on this machine: {_IPV6}: {error.strerror}"
    return ""
