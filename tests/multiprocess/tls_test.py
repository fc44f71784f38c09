# SPDX-License-Identifier: Apache-2.0
"""``CIUIC_TLS=1``: collectives over it, ranks that differ in it, and what a listener gets to see.

The last runs ranks in a network namespace of their own and captures its loopback interface. Needs
root and ``ip``.
"""

import json
import secrets
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from network_namespaces import Namespaces

# ---- collectives ----


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_operation(ciuic_run, ranks: int) -> None:
    variables = {"CIUIC_TRANSPORT": "tcp", "CIUIC_TLS": "1"}
    result = ciuic_run(ranks, "operations.py", "--transports", "tcp", **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == ranks


@pytest.mark.slow
def test_two_hosts_share_memory_inside_and_use_tls_between(ciuic_run) -> None:
    arguments = ["--hosts", "2", "--transports", "shm+tcp"]
    result = ciuic_run(4, "operations.py", *arguments, CIUIC_TLS="1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 4


# ---- ranks that differ ----


@pytest.mark.parametrize("odd", [0, 2])
def test_the_rank_that_differs_is_named(processes, tmp_path: Path, odd: int) -> None:
    """Rank ``odd`` has it on, the others off. Rank 0 names the first that differs, to all."""
    for rank in range(3):
        arguments = {"world_size": 3, "rank": rank, "store": f"file://{tmp_path}/store"}
        variables = {"CIUIC_TLS": str(int(rank == odd)), "CIUIC_TIMEOUT_MS": "60000"}
        processes.start("join.py", json.dumps(arguments), variables=variables)
    lines = [output.strip().splitlines()[-1] for output in processes.outputs()]
    for line in lines:
        assert line.startswith("MismatchError: "), lines
        assert "CIUIC_TLS" in line
        assert "rank 0" in line
    ours, theirs = int(odd == 0), int(odd != 0)
    assert "CIUIC_TLS differs: rank 0 (host " in lines[0]
    if odd == 2:
        for line in lines[:2]:  # rank 1 agrees with rank 0, and is told the same
            assert f"has {ours}, rank 2 has {theirs}" in line
        assert f"CIUIC_TLS={theirs} here, {ours} at the peer" in lines[2]
    else:
        assert any(f"has {ours}, rank {rank} has {theirs}" in lines[0] for rank in (1, 2))


@pytest.mark.parametrize("tls", ["0", "1"])
def test_describe_says_it(processes, tmp_path: Path, tls: str) -> None:
    for rank in range(2):
        arguments = {"world_size": 2, "rank": rank, "store": f"file://{tmp_path}/store"}
        processes.start("join.py", json.dumps(arguments), variables={"CIUIC_TLS": tls})
    for output in processes.outputs():
        described = next(line for line in output.splitlines() if line.startswith("{"))
        assert json.loads(described)["tls"] is (tls == "1")


def test_a_store_that_cannot_says_so(processes, tmp_path: Path) -> None:
    """Its process finds a ``libssl.so.3`` that is none; a rank waits for nothing."""
    (tmp_path / "libssl.so.3").touch()
    server = processes.start(
        "store_server.py", "127.0.0.1", variables={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    url, secret = server.stdout.readline().split()
    arguments = {"world_size": 2, "rank": 0, "store": url, "timeout_s": 100}
    variables = {"CIUIC_TLS": "1", "CIUIC_SECRET": secret}
    rank = processes.start("join.py", json.dumps(arguments), variables=variables)
    last = rank.communicate(timeout=90)[0].strip().splitlines()[-1]
    assert last.startswith("UnavailableError: "), last
    for words in ("CIUIC_TLS=1 here", "libssl.so.3", url.removeprefix("tcp://")):
        assert words in last


def test_a_wrong_value_is_refused(ciuic_run) -> None:
    result = ciuic_run(1, "join.py", CIUIC_TLS="yes")
    assert "CIUIC_TLS=yes is not valid; allowed: 0 or 1" in result.stdout + result.stderr


# ---- what a listener sees ----


@dataclass
class Stream:
    """One direction of a TCP connection: what was captured, by sequence number."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    first: int = 0  # the number of its first byte

    def whole(self) -> bytes:
        """All bytes; each must have been captured."""
        text = b""
        ordered = {(number - self.first) % 2**32: piece for number, piece in self.pieces.items()}
        for offset in sorted(ordered):
            assert offset <= len(text), "the capture has a hole"
            text += ordered[offset][len(text) - offset :]
        return text


def streams_of(path: Path) -> dict[tuple[bytes, bytes], Stream]:
    """TCP over IPv4 and IPv6, of the packets that ``capture.py`` wrote."""
    streams: dict[tuple[bytes, bytes], Stream] = {}
    packets = path.read_bytes()
    at = 0
    while at < len(packets):
        (size,) = struct.unpack_from("<I", packets, at)
        packet = packets[at + 4 : at + 4 + size]
        at += 4 + size
        kind = packet[12:14]
        if kind == b"\x08\x00" and packet[14 + 9] == 6:
            end = 14 + int.from_bytes(packet[16:18], "big")
            header = 14 + (packet[14] & 15) * 4
            source, destination = packet[26:30], packet[30:34]
        elif kind == b"\x86\xdd" and packet[14 + 6] == 6:
            end = 54 + int.from_bytes(packet[18:20], "big")
            header = 54
            source, destination = packet[22:38], packet[38:54]
        else:
            continue
        end = end if end > header else size  # the kernel leaves 0 where 16 bits are too few
        ends = (source + packet[header : header + 2], destination + packet[header + 2 : header + 4])
        stream = streams.setdefault(ends, Stream())
        (number,) = struct.unpack_from(">I", packet, header + 4)
        payload = packet[header + (packet[header + 12] >> 4) * 4 : end]
        if packet[header + 13] & 2:  # SYN
            stream.first = (number + 1) % 2**32
        elif payload and len(payload) > len(stream.pieces.get(number, b"")):
            stream.pieces[number] = payload
    return streams


@dataclass
class Captured:
    """Both directions of the connections of a run."""

    connections: list[tuple[bytes, bytes]]  # what the connecting end sent, and the accepting one

    def bytes(self) -> bytes:
        return b"".join(sent + came for sent, came in self.connections)


class Namespace(Namespaces):
    """A network of its own, with nothing but a loopback interface."""

    def __init__(self, processes) -> None:
        super().__init__(1)
        self._processes = processes

    def start(self, program: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return self._processes.start(
            program, *arguments, variables=variables, prefix=self.inside(0)
        )

    def capture(self, programs: Path, path: Path, pattern: bytes, **variables: str) -> Captured:
        """What three ranks on two hosts, and the store they meet in, say to each other."""
        command = [*self.inside(0), sys.executable, str(programs / "capture.py")]
        listener = subprocess.Popen(
            [*command, "lo", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert listener.stdout is not None
        try:
            said = listener.stdout.readline().strip()
            if said != "ready":
                pytest.skip(said)
            server = self.start("store_server.py", "127.0.0.1")
            assert server.stdout is not None
            url, secret = server.stdout.readline().split()
            ranks = [
                self.start(
                    "pattern.py",
                    pattern.hex(),
                    CIUIC_STORE=url,
                    CIUIC_SECRET=secret,
                    CIUIC_TRANSPORT="tcp",
                    CIUIC_HOST_ID=f"host-{rank % 2}",
                    RANK=str(rank),
                    WORLD_SIZE="3",
                    LOCAL_RANK=str(rank // 2),
                    **variables,
                )
                for rank in range(3)
            ]
            outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
            server.kill()
            for rank, output in enumerate(outputs):
                assert output.strip().endswith(f"moved {rank} ['tcp']"), output
            end, _ = listener.communicate(timeout=60)
            assert end.strip() == "dropped 0"
        finally:
            if listener.poll() is None:
                listener.kill()
            listener.wait()
            listener.stdout.close()
        streams = streams_of(path)
        both = [
            (stream.whole(), streams[(there, here)].whole())
            for (here, there), stream in streams.items()
        ]
        return Captured([pair for pair in both if pair[0][9:10] == b"\x01"])


@pytest.fixture
def namespace(processes) -> Iterator[Namespace]:
    made = Namespace(processes)
    yield made
    made.remove()


HELLO_BYTES, MAC_BYTES = 128, 32  # src/security/handshake.cc
HANDSHAKE, APPLICATION_DATA = 22, 23  # RFC 8446, 5.1; an alert after the key is there is data, too
TLS_1_3 = b"\x00\x2b\x00\x02\x03\x04"  # supported_versions of a server's hello: 1.3


def records(text: bytes) -> list[tuple[int, bytes]]:
    """Takes TLS records apart; nothing may be left over."""
    found = []
    at = 0
    while at < len(text):
        kind, version, size = struct.unpack_from(">BHH", text, at)
        assert version in (0x0301, 0x0303), f"no TLS record at byte {at}"  # RFC 8446, 5.1
        assert size <= 16_384 + 256
        assert at + 5 + size <= len(text), "a record was cut off"
        found.append((kind, text[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


@pytest.mark.slow
def test_a_listener_sees_the_payload_without_tls(
    namespace: Namespace, programs: Path, tmp_path: Path
) -> None:
    """Without which the next test would prove nothing."""
    pattern = secrets.token_bytes(32)
    seen = namespace.capture(programs, tmp_path / "plain", pattern, CIUIC_TLS="0")
    assert seen.bytes().count(pattern) > 100_000
    assert b"ciuic/" in seen.bytes() or b"buffer_size" in seen.bytes()  # cards, keys of the store


@pytest.mark.slow
def test_a_listener_sees_nothing_but_records_with_tls(
    namespace: Namespace, programs: Path, tmp_path: Path
) -> None:
    pattern = secrets.token_bytes(32)
    seen = namespace.capture(programs, tmp_path / "tls", pattern, CIUIC_TLS="1")
    for part in (pattern, pattern[:8], b"buffer_size", b"CIUIC_TRANSPORT"):
        assert part not in seen.bytes()
    hidden_bytes = 0
    tls_connections = 0
    for sent, came in seen.connections:
        # Of two addresses that are tried at once one is dropped; its connection may end anywhere.
        for text in (sent, came):
            assert text[:8] == b"CIUIC hs"[: len(text)]
        asked, answered = (records(text[HELLO_BYTES + MAC_BYTES :]) for text in (sent, came))
        for found in (asked, answered):
            assert {kind for kind, _ in found[:1]} <= {HANDSHAKE}
            assert {kind for kind, _ in found[1:]} <= {APPLICATION_DATA}
            hidden_bytes += sum(len(data) for _, data in found[1:])
        if answered:
            tls_connections += 1
            assert TLS_1_3 in answered[0][1]
        else:  # nothing but a hello may have been sent
            assert len(asked) <= 1
    # The payload did go over these connections: three ranks' to the store, two joins, and links.
    assert tls_connections >= 3 + 2 + 2
    assert hidden_bytes > 100_000 * len(pattern)
