"""Run commands as their scripts would, each in a fork of this process, which has imported what takes them longest.

`python tests/warm_commands.py SOCKET` listens at a Unix socket. `tests/warm_command.py` connects to it for one
command: it sends `{argv, cwd, env, open_files}` with its standard streams, and receives `{pid}` once the command has
begun and `{code}` once it has ended. A command ends with its connection, and this process with its standard input.

A command that starts servers needs one more process, which imports as much (`nemo_gym.process.fork_server`). Each
command has a child for it, which is another fork of this process.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from nemo_gym.launcher.warm import WARM_MODULE
from nemo_gym.process import fork_server

WARM = ("fastapi", "httptools", "httpx", "omegaconf", "orjson", "packaging.requirements", "pydantic", "rich.console",
        "rich.live", "rich.progress", "rich.table", "uvicorn", "yaml")  # fmt: skip
STREAMS = 3
REQUEST_BYTES = 1 << 20
DESCRIPTORS = 1 << 16
"""More than this process has open."""
PR_SET_NAME = 15


def main(path: str) -> None:
    for name in (*WARM, *fork_server.PRELOADED):
        importlib.import_module(name)
    commands = importlib.import_module("nemo_gym.cli")
    for each in pkgutil.iter_modules(commands.__path__, "nemo_gym.cli."):
        importlib.import_module(each.name)
    fork_server._make_an_app()
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
            _be(streams, **json.loads(message))
        for stream in streams:
            os.close(stream)
        running = os.pidfd_open(pid)
        self._send(client, pid=pid)
        self._events.register(client, selectors.EVENT_READ, lambda: self._abandon(client, pid))
        self._events.register(running, selectors.EVENT_READ, lambda: self._end(client, running, pid))

    def _abandon(self, client: socket.socket, pid: int) -> None:
        """Kill a command whose connection was closed. Its end is seen as that of any other."""
        if client.fileno() < 0:
            # The command has ended at the same moment.
            return
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
    os.closerange(STREAMS, DESCRIPTORS)
    os.chdir(cwd)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(open_files))
    _take_on([sys.executable, *argv], env, Path(argv[0]).name)
    spare = Spare()
    sys.argv, sys.orig_argv = argv, [sys.executable, *argv]
    sys.path[0] = str(Path(argv[0]).parent)
    # The streams of this process may be of another kind, such as files, in which one can seek.
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if env.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
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
        spare.close()
        # To tidy up after all of the imports would take longer than most commands do.
        os._exit(code)


class Spare:
    """A child of a command that becomes the process that forks its servers, in place of a new interpreter."""

    def __init__(self) -> None:
        self._order, order = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            self._order.close()
            _fork_servers(order)
        order.close()
        self._is_used = False
        self._execute = subprocess._fork_exec  # type: ignore[attr-defined]
        subprocess._fork_exec = self._fork_or_execute  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the child, unless it has become another process."""
        if not self._is_used:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _fork_or_execute(self, words: Sequence[Any], *more: Any) -> int:
        if self._is_used or [*words[1:4]] != ["-P", "-m", WARM_MODULE]:
            number: int = self._execute(words, *more)
            return number
        self._is_used = True
        env = dict(os.fsdecode(each).split("=", 1) for each in more[4])
        socket.send_fds(self._order, [json.dumps([words, env]).encode()], [int(words[4])])
        return self._pid


def _fork_servers(order: socket.socket) -> NoReturn:
    """Wait for the order and be `python -P -m nemo_gym.process.fork_server`. End if the command has ended before."""
    # As for any child process, Ctrl-C in a terminal reaches this one, too, until it has a session of its own.
    message, descriptors, _, _ = socket.recv_fds(order, REQUEST_BYTES, 1)
    order.close()
    if message:
        os.setsid()
        words, env = json.loads(message)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        del sys.path[0]
        _take_on(words, env, "python")
        sys.argv = [str(fork_server.__file__), str(descriptors[0])]
        fork_server.main()
    os._exit(0)


def _take_on(words: Sequence[str], env: Mapping[str, str], name: str) -> None:
    """Have the environment, the command line and the name of a new process, which other processes can read."""
    os.environ.clear()
    os.environ.update(env)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    words_at, words_end, env_at, env_end = map(int, fields[45:49])
    # If the last byte is not zero, Linux takes the rest for one text that ends with a zero.
    _write(words_at, words_end - 1, " ".join(words).encode())
    ctypes.memset(words_end - 1, 1, 1)
    _write(env_at, env_end, b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in env.items()))


def _write(begin: int, end: int, text: bytes) -> None:
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, min(len(text), end - begin - 1))


if __name__ == "__main__":
    main(sys.argv[1])
