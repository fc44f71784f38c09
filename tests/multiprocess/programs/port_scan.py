# SPDX-License-Identifier: Apache-2.0
"""Tries every TCP port of the host given, and prints those that answer; then what each says first.

``open PORT BYTES``: how many bytes it says, unasked and after garbage, before it hangs up or has
been silent for a while; nobody is at a port yet that is only needed later in a join.
"""

import errno
import selectors
import socket
import sys

AT_ONCE = 500


def open_ports(host: str) -> list[int]:
    """Those at which a connection comes about."""
    found = []
    waiting = selectors.DefaultSelector()
    ports = iter(range(1, 65536))
    more = True
    while more or waiting.get_map():
        while more and len(waiting.get_map()) < AT_ONCE:
            port = next(ports, None)
            if port is None:
                more = False
                break
            probe = socket.socket()
            probe.setblocking(False)
            result = probe.connect_ex((host, port))
            if result == errno.EINPROGRESS:
                waiting.register(probe, selectors.EVENT_WRITE, port)
                continue
            if result == 0:
                found.append(port)
            probe.close()
        for key, _ in waiting.select(timeout=5):
            probe = key.fileobj
            assert isinstance(probe, socket.socket)
            if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(key.data)
            waiting.unregister(probe)
            probe.close()
    return found


def bytes_heard(host: str, port: int) -> int:
    """Of one connection that says nothing that is understood."""
    heard = 0
    with socket.create_connection((host, port), timeout=60) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(1000))
        stranger.settimeout(1)
        try:
            while received := stranger.recv(4096):
                heard += len(received)
        except (ConnectionResetError, TimeoutError):
            pass
    return heard


for port in open_ports(sys.argv[1]):
    print("open", port, bytes_heard(sys.argv[1], port), flush=True)
