# SPDX-License-Identifier: Apache-2.0
"""Two hosts as two network namespaces with a cable between them, and what misleads there.

Shared memory inside each, TCP across. Needs root and ``ip``.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from network_namespaces import Namespaces


class Hosts(Namespaces):
    """Two namespaces with a cable: ``10.231.x.1`` and ``.2``, ``fd00:231:x::1`` and ``::2``.

    ``families``: of each host, which of the two its cable has, as "4", "6" or "46".
    """

    def __init__(self, families: tuple[str, str] = ("4", "4")) -> None:
        super().__init__(2)
        self.addresses = [f"10.231.{self.subnet}.{last}" for last in (1, 2)]
        self.addresses_6 = [f"fd00:231:{self.subnet}::{last}" for last in (1, 2)]
        cables = self.cables = [f"cu{self.word}a"[:15], f"cu{self.word}b"[:15]]
        self.lay_cable(0, cables[0], 1, cables[1])
        for host, has in enumerate(families):
            if "6" not in has:
                self.run(host, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            if "4" not in has:
                self.ip(host, "address", "delete", "127.0.0.1/8", "dev", "lo")
            if "4" in has:
                self.ip(host, "address", "add", f"{self.addresses[host]}/24", "dev", cables[host])
            if "6" in has:
                network = f"{self.addresses_6[host]}/64"
                self.ip(host, "address", "add", network, "dev", cables[host], "nodad")
            self.ip(host, "link", "set", cables[host], "up")

    def add_island(self, host: int, name: str, network: str, bridge: bool) -> None:
        """An interface that is up, has a carrier, and leads to no other host."""
        ends = [f"{name}x", f"{name}y"] if bridge else [name, f"{name}y"]
        self.ip(host, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        if bridge:
            self.ip(host, "link", "add", name, "type", "bridge")
            self.ip(host, "link", "set", ends[0], "master", name)
        for end in {name, *ends}:
            self.ip(host, "link", "set", end, "up")
        self.ip(host, "address", "add", network, "dev", name)

    def call(self, host: int, **names: str) -> None:
        """What names stand for on this host, by its hosts file."""
        folder = Path("/etc/netns") / self.names[host]  # `ip netns exec` puts it over /etc
        folder.mkdir(parents=True)
        lines = [f"{address} {name}\n" for name, address in names.items()]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

    def pull_cable(self) -> None:
        """From here on nothing passes, and nobody is told."""
        self.ip(0, "link", "set", self.cables[0], "down")


@pytest.fixture
def make_hosts() -> Iterator[Callable[..., Hosts]]:
    made: list[Hosts] = []

    def make(families: tuple[str, str] = ("4", "4")) -> Hosts:
        made.append(Hosts(families))
        return made[-1]

    yield make
    for hosts in made:
        hosts.remove()


@pytest.fixture
def hosts(make_hosts) -> Hosts:
    return make_hosts()


def serve_store(hosts: Hosts, processes, address: str) -> tuple[str, str]:
    """Of host 0: the URL and the secret."""
    server = processes.start("store_server.py", address, variables={}, prefix=hosts.inside(0))
    assert server.stdout is not None
    url, secret = server.stdout.readline().split()
    return url, secret


def start_ranks(
    hosts: Hosts, processes, program: str, timeout_s: float, store: tuple[str, str], on_each: int
):
    """The first half of the ranks on host 0."""
    return [
        processes.start(
            program,
            json.dumps({"timeout_s": timeout_s}),
            variables={
                "CIUIC_STORE": store[0],
                "CIUIC_SECRET": store[1],
                "RANK": str(rank),
                "WORLD_SIZE": str(2 * on_each),
                "LOCAL_RANK": str(rank % on_each),
            },
            prefix=hosts.inside(rank // on_each),
        )
        for rank in range(2 * on_each)
    ]


def start_two_hosts_of_two(hosts: Hosts, processes, program: str, timeout_s: float):
    store = serve_store(hosts, processes, hosts.addresses[0])
    return start_ranks(hosts, processes, program, timeout_s, store, on_each=2)


def descriptions(ranks) -> list[dict]:
    """Of ranks of join.py, all of which have to join."""
    found = []
    for rank, process in enumerate(ranks):
        output = process.communicate(timeout=240)[0]
        lines = output.strip().splitlines()
        assert lines[-1] == f"joined {rank} {len(ranks)}", output
        found.append(json.loads(lines[-2]))
    return found


@pytest.mark.slow
def test_two_hosts_of_two(hosts: Hosts, processes) -> None:
    ranks = start_two_hosts_of_two(hosts, processes, "join.py", timeout_s=60)
    for described in descriptions(ranks):
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


# ---- addresses ----


def test_a_host_whose_name_is_loopback(hosts: Hosts, processes) -> None:
    """As Debian writes it: on the host itself its name stands for 127.0.1.1."""
    hosts.call(0, storehost="127.0.1.1")
    hosts.call(1, storehost=hosts.addresses[0])
    url, secret = serve_store(hosts, processes, "0.0.0.0")
    store = (url.replace("0.0.0.0", "storehost"), secret)
    ranks = start_ranks(hosts, processes, "join.py", 60, store, on_each=1)
    for host, described in enumerate(descriptions(ranks)):
        assert described["hosts"] == 2
        assert described["transports"] == ["tcp"]
        assert described["interface"] == hosts.cables[host]


@pytest.mark.parametrize("meets", ["tcp", "file"])
def test_interfaces_that_lead_nowhere(hosts: Hosts, processes, tmp_path: Path, meets: str) -> None:
    """Both hosts have a bridge of containers and a card of an island, with one address each.

    Where ranks meet in a file, no route to the place tells which card is of use.
    """
    for host in range(2):
        hosts.add_island(host, "docker0", "172.17.0.1/16", bridge=True)
        hosts.add_island(host, "aisland", "10.99.0.1/24", bridge=False)
    store = (f"file://{tmp_path}/store", secrets.token_hex(32))
    if meets == "tcp":
        store = serve_store(hosts, processes, hosts.addresses[0])
    ranks = start_ranks(hosts, processes, "join.py", 60, store, on_each=1)
    for host, described in enumerate(descriptions(ranks)):
        assert described["hosts"] == 2
        assert described["transports"] == ["tcp"]
        assert described["interface"] != "docker0"
        if meets == "tcp":
            assert described["interface"] == hosts.cables[host]


@pytest.mark.parametrize(
    "families", [("4", "4"), ("6", "6"), ("46", "46"), ("46", "6"), ("4", "46")], ids="-".join
)
def test_families_of_addresses(make_hosts, processes, families: tuple[str, str]) -> None:
    hosts = make_hosts(families)
    both = set(families[0]) & set(families[1])
    for family in sorted(both):
        address = (hosts.addresses if family == "4" else hosts.addresses_6)[0]
        store = serve_store(hosts, processes, address)
        ranks = start_ranks(hosts, processes, "join.py", 60, store, on_each=1)
        for described in descriptions(ranks):
            assert described["hosts"] == 2
            assert described["transports"] == ["tcp"]


def test_a_name_that_is_of_another_family_on_each_host(make_hosts, processes) -> None:
    hosts = make_hosts(("46", "46"))
    hosts.call(0, storehost=hosts.addresses_6[0])
    hosts.call(1, storehost=hosts.addresses[0])
    url, secret = serve_store(hosts, processes, "::")
    store = (url.replace("[::]", "storehost"), secret)
    ranks = start_ranks(hosts, processes, "join.py", 60, store, on_each=1)
    assert all(described["hosts"] == 2 for described in descriptions(ranks))


def test_hosts_without_a_common_family_are_both_named(
    make_hosts, processes, tmp_path: Path
) -> None:
    hosts = make_hosts(("4", "6"))
    store = (f"file://{tmp_path}/store", secrets.token_hex(32))
    ranks = start_ranks(hosts, processes, "join.py", 5, store, on_each=1)
    for rank, process in enumerate(ranks):
        last = process.communicate(timeout=240)[0].strip().splitlines()[-1]
        assert last.startswith(("TimeoutError: ", "PeerLostError: ")), last
        assert f"rank {1 - rank}" in last
    # The one that dials says what it has tried.
    assert hosts.addresses[0] in last
