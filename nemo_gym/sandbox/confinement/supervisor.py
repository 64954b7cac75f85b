"""The first process inside a sandbox. It runs the commands of its owner, the process that started the sandbox.

This script uses the standard library only. Descriptor 0 is a socket to the owner. The first message has the settings
as JSON. Each further message passes a connection for one command. To copy a file, the message also passes the open
local file. To listen on a port, the message also passes a socket, through which this process returns the listening
socket. This process exits when the owner closes descriptor 0 or the sandbox times out. In a PID namespace, the kernel
then kills all other processes of the sandbox. Without one, this process kills its descendants before it exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Mapping
from typing import Literal, NoReturn, TypedDict

MEBIBYTE = 2**20
HEADER_BYTES = 8
CHUNK = 65_536
BACKLOG = 128
POLL_MS = 50
"""Milliseconds between checks for the end of a command, on systems without pidfd."""
ENDING_S = 5.0
SETTINGS_BYTES = 65_536
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 1, 4, 22, 36
SECCOMP_MODE_FILTER, SECCOMP_STEP_BYTES = 2, 8
CANNOT_RUN, NOT_FOUND = 126, 127
TIMED_OUT_CODE = 124


class Settings(TypedDict):
    """The settings of the sandbox: the first message that the owner sends to this supervisor."""

    is_alone: bool
    """Whether the sandbox has its own PID namespace."""
    workdir: str
    roots: list[str]
    """The folders to and from which files may be copied."""
    uid: int | None
    processes: int
    address_space_mib: int | None
    file_mib: int | None
    seccomp: str | None
    """The filter of system calls, as hexadecimal digits."""
    ttl_s: float | None


class Request(TypedDict, total=False):
    """A command to run, a file to copy into the sandbox or out of it, or a port to listen on."""

    act: Literal["run", "put", "get", "listen"]
    timeout_s: float | None
    output_bytes: int
    command: list[str]
    env: dict[str, str]
    cwd: str | None
    path: str
    mode: int
    port: int


def main() -> NoReturn:
    """Fork a process for each command of the owner, until the owner closes the socket."""
    control = socket.socket(fileno=0)
    settings = json.loads(control.recv(SETTINGS_BYTES))
    if settings["is_alone"] and os.getpid() != 1:
        raise SystemExit("the supervisor is not the first process of its own PID namespace")
    # Make this process not dumpable, so that processes of the same user cannot read its memory or descriptors.
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Let the kernel reap children and orphans.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: _leave())
    if settings["ttl_s"]:
        signal.setitimer(signal.ITIMER_REAL, settings["ttl_s"])
    while True:
        descriptors = socket.recv_fds(control, 1, 2)[1]
        if not descriptors:
            _leave()
        if os.fork() == 0:
            _attend(settings, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _leave() -> NoReturn:
    """End the sandbox. In a PID namespace the kernel kills its other processes; otherwise kill all descendants."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    if os.getpid() != 1:
        _end_descendants()
    os._exit(0)


def _attend(settings: Settings, connection: int, file: int | None = None) -> NoReturn:
    """Serve one request in this forked process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        request = json.loads(_read_frame(connection))
        command = Command(settings, request, connection, file)
        _write_frame(connection, command.ran())
        os.close(connection)
        command.outlive()
    except (OSError, EOFError):
        _end_descendants()
    os._exit(0)


class Command:
    """The child process that serves one request: it runs a command, copies a file, or opens a listening socket."""

    def __init__(self, settings: Settings, request: Request, connection: int, file: int | None) -> None:
        self._request = request
        self._connection = connection
        outputs, errors = os.pipe(), os.pipe()
        self._pipes = {outputs[0]: Kept(request["output_bytes"]), errors[0]: Kept(request["output_bytes"])}
        self._pid = os.fork()
        if self._pid == 0:
            _become(settings, request, outputs[1], errors[1], file)
        for end in (outputs[1], errors[1]):
            os.close(end)
        if file is not None:
            os.close(file)

    def ran(self) -> dict[str, str | int]:
        """Wait until the command ends, times out, or is cancelled by the owner. Return the reply."""
        how, status = "finished", None
        timeout_s = self._request["timeout_s"]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = self._poll()
        poll.register(self._connection, select.POLLIN)
        ending = _pidfd(self._pid)
        if ending is not None:
            poll.register(ending, select.POLLIN)
        while status is None:
            # The owner does not send anything more, so the connection becomes readable only when the owner closes it.
            if self._connection in [each for each, _ in poll.poll(POLL_MS)]:
                raise EOFError
            self._drain(poll)
            status = self._reaped()
            if status is None and deadline is not None and time.monotonic() > deadline:
                how, status = "out of time", TIMED_OUT_CODE
                _end_descendants()
        self._drain(poll)
        stdout, stderr = (kept.as_text() for kept in self._pipes.values())
        return {"how": how, "code": status, "stdout": stdout, "stderr": stderr}

    def outlive(self) -> None:
        """Read and discard the output of background processes, because a closed pipe would kill them."""
        poll = self._poll()
        open_ends = set(self._pipes)
        while open_ends:
            for end, _ in poll.poll(1_000):
                if _read(end) == b"":
                    poll.unregister(end)
                    open_ends.discard(end)
            self._reaped()

    def _poll(self) -> select.poll:
        poll = select.poll()
        for end in self._pipes:
            os.set_blocking(end, False)
            poll.register(end, select.POLLIN)
        return poll

    def _drain(self, poll: select.poll) -> None:
        """Read the available output, but at most 64 chunks per pipe, so that the timeout is still checked."""
        for end, kept in self._pipes.items():
            for _ in range(64):
                chunk = _read(end)
                if not chunk:
                    if chunk == b"":
                        with contextlib.suppress(KeyError):
                            poll.unregister(end)
                    break
                kept.add(chunk)

    def _reaped(self) -> int | None:
        """Reap all children that have ended. Return the command's exit code if it is one of them, or else None."""
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._pid:
                    code = os.waitstatus_to_exitcode(status)
                    found = code if code >= 0 else 128 - code
        return found


class Kept:
    """A buffer that keeps the start and the end of an output, and drops the middle."""

    def __init__(self, most: int) -> None:
        self._half = max(most // 2, 1)
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = max(len(self._tail) - self._half, 0)
        self._left_out += excess
        del self._tail[:excess]

    def as_text(self) -> str:
        gap = f"\n[… {self._left_out} bytes left out …]\n".encode() if self._left_out else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


def _become(settings: Settings, request: Request, output: int, errors: int, file: int | None) -> NoReturn:
    """Run the command, copy the file or open the socket of a request, as the sandbox's user and under its limits."""
    code = CANNOT_RUN
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        _keep_only(0, 1, 2, *([file] if file is not None else []))
        _limit(settings)
        if file is not None and request["act"] == "listen":
            _listen(request["port"], file)
            code = 0
        elif file is not None:
            _copy(settings, request, file)
            code = 0
        else:
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            os.umask(0o022)
            os.chdir(os.path.join(settings["workdir"], request["cwd"] or ""))
            code = _executed(request["command"], request["env"])
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # noqa: BLE001 - the process ends here
        _say(f"{type(error).__name__}: {error}")
    os._exit(code)


def _executed(command: list[str], env: dict[str, str]) -> int:
    """Replace this process with the command. If it cannot be run, return the exit code that a shell would use."""
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


def _say(problem: str) -> None:
    os.write(2, problem.encode(errors="replace") + b"\n")


def _limit(settings: Settings) -> None:
    limits: dict[int, int] = {resource.RLIMIT_CORE: 0}
    if settings["address_space_mib"]:
        limits[resource.RLIMIT_AS] = settings["address_space_mib"] * MEBIBYTE
    if settings["is_alone"]:
        # Set this limit only in a confined sandbox. Elsewhere it would also count other processes of the user.
        limits[resource.RLIMIT_NPROC] = settings["processes"]
    if settings["file_mib"]:
        limits[resource.RLIMIT_FSIZE] = settings["file_mib"] * MEBIBYTE
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    _prctl(PR_SET_DUMPABLE, 1)
    # If memory runs out, the kernel must kill commands before this supervisor.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    _prctl(PR_SET_DUMPABLE, 0)
    if settings["uid"] is not None:
        os.setgroups([])
        os.setresgid(settings["uid"], settings["uid"], settings["uid"])
        os.setresuid(settings["uid"], settings["uid"], settings["uid"])
    if settings["seccomp"]:
        _filter_calls(bytes.fromhex(settings["seccomp"]))


def _filter_calls(program: bytes) -> None:
    """Install a filter of system calls, which all descendants inherit."""
    steps = ctypes.create_string_buffer(program, len(program))
    about = struct.pack("HP", len(program) // SECCOMP_STEP_BYTES, ctypes.addressof(steps))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, about, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be installed")


def _copy(settings: Settings, request: Request, file: int) -> None:
    path = os.path.realpath(os.path.join(settings["workdir"], request["path"]))
    if not any(path.startswith(f"{root}/") for root in map(os.path.realpath, settings["roots"])):
        allowed = ", ".join(settings["roots"])
        raise PermissionError(f"{request['path']} is outside the folders that allow copying: {allowed}")
    if request["act"] == "put":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644)
        os.fchmod(target, request["mode"])
        _copy_all(file, _regular(target, request["path"]))
    else:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        _copy_all(_regular(source, request["path"]), file)


def _listen(port: int, receiver: int) -> None:
    """Send the owner a socket that listens in the sandbox's network. Only the sandbox can connect to it."""
    with socket.create_server(("127.0.0.1", port), backlog=BACKLOG) as listener, socket.socket(fileno=receiver) as to:
        socket.send_fds(to, [b"l"], [listener.fileno()])


def _regular(descriptor: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(f"{path} is not a file")
    return descriptor


def _copy_all(source: int, target: int) -> None:
    with open(target, "wb", closefd=False) as writer:
        while chunk := os.read(source, MEBIBYTE):
            writer.write(chunk)


def _end_descendants() -> None:
    """Kill all descendants, including those that started their own session."""
    until = time.monotonic() + ENDING_S
    stopped: set[int] = set()
    while (found := _descendants()) and time.monotonic() < until:
        # A stopped process cannot fork. Once all descendants are stopped, they can be killed.
        new = found - stopped
        for pid in new or found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= new
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not new:
            time.sleep(0.002)


def _descendants() -> set[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # Split at the last parenthesis, because the program's name in parentheses may contain any character.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    parents[int(name)] = int(parent)
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _keep_only(*descriptors: int) -> None:
    kept = sorted(descriptors)
    for before, after in zip(kept, [*kept[1:], 65_536], strict=True):
        os.closerange(before + 1, after)


def _read(end: int) -> bytes | None:
    """Return the available bytes. Return None if none have arrived yet, and b"" at the end of the output."""
    try:
        return os.read(end, CHUNK)
    except BlockingIOError:
        return None


def _read_frame(connection: int) -> bytes:
    with open(connection, "rb", closefd=False) as reader:
        size = int.from_bytes(reader.read(HEADER_BYTES), "big")
        message = reader.read(size)
    if not size or len(message) < size:
        raise EOFError
    return message


def _write_frame(connection: int, message: Mapping[str, object]) -> None:
    body = json.dumps(message).encode()
    with open(connection, "wb", closefd=False) as writer:
        writer.write(len(body).to_bytes(HEADER_BYTES, "big") + body)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
