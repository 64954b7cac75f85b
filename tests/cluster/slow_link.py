"""Forward packets between two interfaces with a delay and losses. Kernels without netem can do the same this way.

Usage: slow_link.py INTERFACE INTERFACE DELAY_MS LOSS_PERCENT
"""

from __future__ import annotations

import random
import select
import socket
import sys
import time
from collections import deque

SOL_PACKET = 263
PACKET_VNET_HDR = 15
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
ETH_P_ALL = 0x0003
LARGEST = 128 * 1024
BUFFER = 16 * 1024 * 1024


def opened(interface: str) -> socket.socket:
    """Return a socket for all packets of an interface."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # With this header, large packets and checksums that the kernel has not computed yet are passed on as they are.
    raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
    raw.bind((interface, ETH_P_ALL))
    raw.setblocking(False)
    return raw


def forward(interfaces: list[str], delay_s: float, loss: float) -> None:
    """Forward until the process is killed."""
    first, second = (opened(interface) for interface in interfaces)
    other = {first: second, second: first}
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        pause_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for readable in select.select([first, second], [], [], pause_s)[0]:
            receive(readable, other[readable], waiting, delay_s, loss)
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, packet = waiting.popleft()
            try:
                target.send(packet)
            except OSError:
                # A full queue or an unplugged cable loses packets, as a real one does.
                continue


def receive(
    source: socket.socket,
    target: socket.socket,
    waiting: deque[tuple[float, socket.socket, bytes]],
    delay_s: float,
    loss: float,
) -> None:
    """Read the packets that have arrived and note when to send each on."""
    while True:
        try:
            packet, (_, _, kind, *_) = source.recvfrom(LARGEST)
        except (BlockingIOError, OSError):
            return
        # Packets that this program has sent come back as outgoing ones.
        if kind != socket.PACKET_OUTGOING and random.random() >= loss:
            waiting.append((time.monotonic() + delay_s, target, packet))


if __name__ == "__main__":
    print("forwarding", flush=True)  # noqa: T201
    forward(sys.argv[1:3], float(sys.argv[3]) / 1000, float(sys.argv[4]) / 100)
