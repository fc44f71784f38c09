# SPDX-License-Identifier: Apache-2.0
"""Writes what goes over an interface to a file until standard input ends.

``capture.py INTERFACE FILE`` prints ``ready``, or why it may not capture; at the end how many
packets the kernel dropped. In the file each packet follows its length in four bytes.
"""

import select
import socket
import struct
import sys

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS = 263, 6
BUFFER_BYTES = 256 << 20


def main() -> None:
    interface, path = sys.argv[1:]
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        raw.bind((interface, 0))
    except OSError as error:
        print(f"no capture: {error}", flush=True)
        return
    print("ready", flush=True)
    with open(path, "wb") as file:
        ends = False
        while True:
            readable, _, _ = select.select([raw, sys.stdin], [], [], 0 if ends else None)
            ends = ends or sys.stdin in readable
            if raw in readable:
                packet, address = raw.recvfrom(1 << 18)
                if address[2] == socket.PACKET_HOST:  # each is there twice: as it goes, as it comes
                    file.write(struct.pack("<I", len(packet)) + packet)
            elif ends:
                break
    _, dropped = struct.unpack("II", raw.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    print(f"dropped {dropped}", flush=True)


main()
