"""The command line that runs a Python script in a sandbox of bubblewrap."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

INSIDE = "/script.py"
SCRATCH = ("/tmp", "/dev/shm")
MEBIBYTE = 2**20
_JOIN = 'n=$1; shift; while [ $n -gt 0 ]; do echo 0 > "$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'


class Interpreter(NamedTuple):
    """A Python, and the folders outside the system's own that it needs."""

    path: str
    folders: list[str]

    @classmethod
    def base(cls) -> Interpreter:
        """The one that this process's virtual environment, should there be one, is made of."""
        path = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
        prefixes = {sys.base_prefix, sys.base_exec_prefix}
        return cls(path, sorted(each for each in prefixes if not Path(each).is_relative_to("/usr")))

    def script(self, path: str) -> list[str]:
        """The command that runs a script with the standard library and nothing of its folder's."""
        return [self.path, "-s", "-P", "-B", path]


def sandboxed(
    script: str, python: Interpreter, *, scratch_mb: int, mounts: Sequence[str] = (), has_network: bool = False
) -> list[str]:
    """The command that runs a script with no network, a read-only system, none of our files, and a small /tmp.

    `mounts` are options of bubblewrap that put something more in its place, after all else.
    """
    size = str(scratch_mb * MEBIBYTE)
    command = ["bwrap", "--ro-bind", "/usr", "/usr"]
    for folder in ("/lib", "/lib64", "/lib32", "/bin", "/sbin"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    command += ["--perms", "0755", "--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for folder in python.folders:
        command += [*parents_of(folder), "--ro-bind", folder, folder]
    command += ["--ro-bind", script, INSIDE, "--proc", "/proc", "--dev", "/dev"]
    for folder in SCRATCH:
        command += ["--perms", "1777", "--size", size, "--tmpfs", folder]
    command += [*mounts, "--remount-ro", "/dev", "--remount-ro", "/"]
    command += ["--chdir", "/", "--die-with-parent", "--new-session"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    command += [] if has_network else ["--unshare-net"]
    # As the first process it cannot be killed from within; and bubblewrap's own, which would be the first, has the
    # same descriptors and lets its user look at them.
    command += ["--as-pid-1", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # To become somebody else, for each program: a limit on processes does not hold for root.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    else:
        command += ["--unshare-user"]
    return [*command, *python.script(INSIDE)]


def parents_of(path: str) -> list[str]:
    """The options that make the folders above a path; those that bubblewrap makes by itself are open to root only."""
    made: list[str] = []
    for parent in list(Path(path).parents)[-2::-1]:
        made += ["--perms", "0755", "--dir", str(parent)]
    return made


def joining(files: Sequence[str], command: list[str]) -> list[str]:
    """The same command, run as a member of the control groups with these member files from its first moment."""
    return ["/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files, *command]
