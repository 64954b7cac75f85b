"""Be one command of the project, run by the process of `tests/warm_commands.py`.

The scripts that `write_scripts` writes hand over their arguments, folder, variables and standard streams, pass signals
on, and end as the command ends. This module imports little, because it starts hundreds of times.
"""

import json
import os
import resource
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ANSWER_BYTES = 4096
SCRIPT = """\
#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
import warm_command
warm_command.be({argv0!r}, {address!r})
"""


def begin(address: str, streams: list[int], **request: object) -> socket.socket:
    """Ask for a command and return the connection, which answers with the command's number and then its exit code."""
    service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service.connect(address)
    limits = {"open_files": resource.getrlimit(resource.RLIMIT_NOFILE)}
    socket.send_fds(service, [json.dumps(request | limits).encode()], streams)
    return service


def answer(service: socket.socket, name: str) -> int:
    """Wait for an answer. Raise `ConnectionError` if the process of the commands has ended."""
    if not (message := service.recv(ANSWER_BYTES)):
        raise ConnectionError("the process of tests/warm_commands.py has ended")
    return int(json.loads(message)[name])


def be(argv0: str, address: str) -> None:
    """Be a command of the project, to its end."""
    # A signal waits until the command has a number.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    service = begin(address, [0, 1, 2], argv=[argv0, *sys.argv[1:]], cwd=os.getcwd(), env=dict(os.environ))
    pid = answer(service, "pid")
    for number in PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = answer(service, "code")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def write_scripts(folder: str, originals: list[str], address: str) -> None:
    """Write a script for each of the project's own that does the same."""
    for original in originals:
        path = os.path.join(folder, os.path.basename(original))
        with open(path, "w", encoding="utf-8") as file:
            here = os.path.dirname(os.path.abspath(__file__))
            file.write(SCRIPT.format(python=sys.executable, folder=here, argv0=original, address=address))
        os.chmod(path, 0o700)
