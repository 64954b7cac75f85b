"""Run commands as their scripts would, each in a fork of this process, which has imported what takes them longest.

`python tests/warm_commands.py SOCKET` listens at a Unix socket. `tests/warm_command.py` connects to it for one
command: it sends `{argv, cwd, env, open_files}` with its standard streams, and receives `{pid}` once the command has
begun and `{code}` once it has ended. A command ends with its connection, and this process with its standard input.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

WARM = ("fastapi", "httptools", "httpx", "omegaconf", "orjson", "packaging.requirements", "pydantic", "rich.console",
        "rich.live", "rich.progress", "rich.table", "uvicorn", "yaml")  # fmt: skip
STREAMS = 3
REQUEST_BYTES = 1 << 20


def main(path: str) -> None:
    for name in WARM:
        importlib.import_module(name)
    commands = importlib.import_module("nemo_gym.cli")
    for each in pkgutil.iter_modules(commands.__path__, "nemo_gym.cli."):
        importlib.import_module(each.name)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)  # noqa: T201
        Commands(listener).serve()


class Commands:
    """The commands under way."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._events = selectors.DefaultSelector()

    def serve(self) -> None:
        """Start the commands that are asked for, until standard input closes."""
        self._events.register(sys.stdin, selectors.EVENT_READ)
        self._events.register(self._listener, selectors.EVENT_READ, self._begin)
        while True:
            for key, _ in self._events.select():
                if key.data is None:
                    return
                key.data()

    def _begin(self) -> None:
        client, _ = self._listener.accept()
        message, streams, _, _ = socket.recv_fds(client, REQUEST_BYTES, STREAMS)
        if len(streams) < STREAMS:
            client.close()
            return
        pid = os.fork()
        if pid == 0:
            client.close()
            self._listener.close()
            self._events.close()
            _be(streams, **json.loads(message))
        for stream in streams:
            os.close(stream)
        running = os.pidfd_open(pid)
        self._send(client, pid=pid)
        self._events.register(client, selectors.EVENT_READ, lambda: self._abandon(client, pid))
        self._events.register(running, selectors.EVENT_READ, lambda: self._end(client, running, pid))

    def _abandon(self, client: socket.socket, pid: int) -> None:
        """Kill a command whose connection was closed. Its end is seen as that of any other."""
        self._events.unregister(client)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _end(self, client: socket.socket, running: int, pid: int) -> None:
        self._events.unregister(running)
        os.close(running)
        self._send(client, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with suppress(KeyError):
            self._events.unregister(client)
        client.close()

    def _send(self, client: socket.socket, **answer: int) -> None:
        with suppress(OSError):
            client.send(json.dumps(answer).encode())


def _be(streams: list[int], argv: list[str], cwd: str, env: dict[str, str], open_files: list[int]) -> None:
    """Be the command's process, to its end."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(open_files))
    sys.argv, sys.orig_argv = argv, [sys.executable, *argv]
    sys.path[0] = str(Path(argv[0]).parent)
    if env.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    code: Any = 1
    try:
        code = importlib.import_module("nemo_gym.cli.main").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
        # To tidy up after all of the imports would take longer than most commands do.
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
