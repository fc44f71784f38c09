# SPDX-License-Identifier: Apache-2.0
"""Attacks every socket at which the given processes listen, until its standard input ends.

Several threads for each listener, TCP and abstract Unix alike: connections that say nothing, that
say garbage or HTTP, that say a byte now and then, and that only come and go. Prints a line for each
listener that it has begun to attack: ``attacks PID KIND WHERE``. Knows no secret.
"""

import ipaddress
import os
import socket
import struct
import sys
import threading
import time

SILENT = 150
SLOW = 30
HELLO = b"CIUIC hs" + bytes(200)  # begins as an honest one does


def address_of(text: str, family: int) -> tuple[str, int]:
    """``0100007F:1F90`` of /proc/net/tcp."""
    host, port = text.split(":")
    words = [struct.pack("=I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8)]
    packed = b"".join(words)
    ip = (
        ipaddress.IPv4Address(packed) if family == socket.AF_INET else ipaddress.IPv6Address(packed)
    )
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if family == socket.AF_INET else "::1")
    return str(ip), int(port, 16)


def listeners_of(pid: int) -> set[tuple[int, object]]:
    """(family, address) of the sockets at which the process listens now."""
    inodes = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found: set[tuple[int, object]] = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/{pid}/net/{name}") as file:
            for line in file.read().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.add((family, address_of(fields[1], family)))
    with open(f"/proc/{pid}/net/unix") as file:
        for line in file.read().splitlines()[1:]:
            fields = line.split()
            accepts = int(fields[3], 16) & 0x10000
            if accepts and fields[6] in inodes and len(fields) > 7 and fields[7][0] == "@":
                found.add((socket.AF_UNIX, "\0" + fields[7][1:]))
    return found


class Attack:
    """On one listener; ends when it is gone."""

    def __init__(self, family: int, address: object) -> None:
        self.family = family
        self.address = address
        for attack in (self.silent, self.garbage, self.slow, self.come_and_go):
            threading.Thread(target=self.run, args=(attack,), daemon=True).start()

    def run(self, attack) -> None:
        try:
            attack()
        except (ConnectionRefusedError, FileNotFoundError):
            return  # nobody listens any more

    def connect(self) -> socket.socket:
        made = socket.socket(self.family)
        made.settimeout(5)
        try:
            made.connect(self.address)
        except (TimeoutError, BlockingIOError, ConnectionResetError, ConnectionAbortedError):
            made.close()
            time.sleep(0.01)
            return self.connect()
        return made

    def silent(self) -> None:
        held = [self.connect() for _ in range(SILENT)]
        while True:
            held.pop(0).close()
            held.append(self.connect())
            time.sleep(0.01)

    def garbage(self) -> None:
        words = [b"\xff" * 100_000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", bytes(5000), HELLO]
        for number in range(1_000_000_000):
            with self.connect() as made:
                try:
                    made.sendall(words[number % len(words)])
                    while made.recv(4096):
                        pass
                except OSError:
                    pass
            time.sleep(0.002)

    def slow(self) -> None:
        held = [(self.connect(), 0) for _ in range(SLOW)]
        while True:
            for at, (made, sent) in enumerate(held):
                try:
                    made.send(HELLO[sent : sent + 1])
                    held[at] = (made, sent + 1)
                except OSError:
                    made.close()
                    held[at] = (self.connect(), 0)
            time.sleep(1)

    def come_and_go(self) -> None:
        while True:
            for made in [self.connect() for _ in range(20)]:
                made.close()
            time.sleep(0.01)


def main() -> None:
    pids = [int(word) for word in sys.argv[1:]]
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    known: set[tuple[int, object]] = set()
    while True:
        for pid in pids:
            try:
                listeners = listeners_of(pid) - known
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            for family, address in listeners:
                known.add((family, address))
                Attack(family, address)
                kind = "unix" if family == socket.AF_UNIX else "tcp"
                print("attacks", pid, kind, repr(address), flush=True)
        time.sleep(0.005)


main()
