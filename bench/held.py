"""A model endpoint that holds every request until a command releases them all, so that all are in flight at once."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bench.endpoint import Connection
from bench.tree import HERE

REPORT_EVERY_S = 0.1


class Admission:
    """The answers that are held back."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: list[tuple[Connection, bytes]] = []

    def answer(self, connection: Connection, answer: bytes) -> None:
        """Answer now if the gate is open, otherwise when it opens."""
        if self._is_open:
            connection.transport.write(answer)
        else:
            self._waiting.append((connection, answer))

    def set_open(self, is_open: bool) -> None:
        """Open the gate and send all waiting answers in order, or close it."""
        self._is_open = is_open
        waiting, self._waiting = self._waiting, []
        for connection, answer in waiting:
            if not connection.transport.is_closing():
                connection.transport.write(answer)

    def waiting(self) -> int:
        """Return the number of waiting requests that are still connected."""
        return sum(not connection.transport.is_closing() for connection, _ in self._waiting)


class HeldConnection(Connection):
    """A connection whose answers pass through the gate."""

    def __init__(self, gate: Admission) -> None:
        super().__init__(0.0, 1)
        self._gate = gate

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self._gate.answer(self, answer)


async def serve() -> None:
    """Print the port, then the number of waiting requests. Read `open` and `close` from stdin until it is closed."""
    soft_and_hard = (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
    resource.setrlimit(resource.RLIMIT_NOFILE, soft_and_hard)
    gate = Admission()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(HeldConnection, gate), "127.0.0.1", 0, backlog=20_000)
    print(server.sockets[0].getsockname()[1], flush=True)

    async def report() -> None:
        reported = 0
        while True:
            if gate.waiting() != reported:
                reported = gate.waiting()
                print(json.dumps(reported), flush=True)
            await asyncio.sleep(REPORT_EVERY_S)

    reporting = loop.create_task(report())
    while word := await asyncio.to_thread(sys.stdin.readline):
        gate.set_open(word.strip() == "open")
    reporting.cancel()


class Held:
    """The endpoint's process, as used by the measuring process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.url = f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        self._waiting = 0
        self._changed_at = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def set_open(self, is_open: bool) -> None:
        """Open or close the gate."""
        assert self._process.stdin is not None
        self._process.stdin.write("open\n" if is_open else "close\n")
        self._process.stdin.flush()

    def gather(self, wanted: int, patience_s: float, goes_on: Callable[[], bool]) -> int:
        """Return the number of held requests once it is reached, stops growing, or `goes_on()` is false."""
        self._changed_at = time.monotonic()
        while self._waiting < wanted and time.monotonic() - self._changed_at < patience_s and goes_on():
            time.sleep(REPORT_EVERY_S)
        return self._waiting

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._waiting = int(line)
            self._changed_at = time.monotonic()


@contextmanager
def held_endpoint() -> Iterator[Held]:
    """Run the endpoint with its gate closed for the duration of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.held"], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield Held(process)
        finally:
            process.stdin.close()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())
