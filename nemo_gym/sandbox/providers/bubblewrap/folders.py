"""Create the folders of sandboxes on this machine, and remove those that dead processes have left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PREFIX = "nemo_gym-sandbox-"
FRESH_S = 60.0
"""Seconds for which a new folder is not removed, because its sandbox may not have locked it yet."""
WORKDIR = "/workspace"


class Home:
    """The folder of one sandbox on this machine. It is locked until the process that created it ends."""

    def __init__(self, parent: str | None, uid: int | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = open(self.folder / "lock", "w")  # noqa: SIM115 - closed by remove()
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir(mode=0o700)
        if uid is None:
            uid = os.geteuid()
        else:
            os.chown(self.workspace, uid, uid)
        (self.folder / "passwd").write_text(f"root:x:0:0::/:/bin/sh\nsandbox:x:{uid}:{uid}::{WORKDIR}:/bin/sh\n")
        (self.folder / "group").write_text(f"root:x:0:\nsandbox:x:{uid}:\n")

    def remove(self) -> None:
        _remove(self.folder)
        self._lock.close()


def remove_leftovers(parent: str | None) -> None:
    """Remove the sandbox folders in `parent` whose creating process has ended."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            is_fresh = time.time() - about.st_mtime < FRESH_S
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or is_fresh:
                continue
            with open(folder / "lock", "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, onerror=_again_with_rights)


def _again_with_rights(act: Callable[..., object], path: str, _: object) -> None:
    """Restore permissions and retry, because a sandboxed command may have removed the permissions of its folders."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            act(path)
