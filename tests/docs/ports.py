"""Replace the ports that a page names by free ones, because other tests and runs have them."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack

HEAD_PORT = "11000"
NAMED = re.compile(r"((?:127\.0\.0\.1|localhost):|port[=:] ?|\.port )(\d{4,5})\b")
START = re.compile(r"\b(ng_run|ng env start)\b")


class Ports:
    """The page's ports, and those that its run uses."""

    def __init__(self, texts: list[str]) -> None:
        named = dict.fromkeys(port for text in texts for _, port in NAMED.findall(text))
        self._free = dict(zip(named, free_ports(len(named)), strict=True))

    def in_text(self, text: str) -> str:
        """Return a block with the ports of this run."""
        return NAMED.sub(lambda found: f"{found[1]}{self._free.get(found[2], found[2])}", text)

    def in_command(self, command: str) -> str:
        """Return a command with the ports of this run, and with the head server's port if it starts servers."""
        if head := self._free.get(HEAD_PORT):
            command = START.sub(rf"\1 +head_server.port={head}", command)
        return self.in_text(command)

    def as_shown(self, output: str) -> str:
        """Return an output with the ports of the page."""
        for shown, free in self._free.items():
            output = re.sub(rf"\b{free}\b", shown, output)
        return output


def free_ports(count: int) -> list[str]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]
