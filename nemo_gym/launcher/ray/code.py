"""Copies of server folders for Ray nodes that lack them: packed once, and unpacked once per node."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.models import RunConfig
from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.errors import LaunchError
from nemo_gym.paths import INSTALL_ROOT

SKIPPED = {"__pycache__", "cache", "node_modules", "results", "venv"}
"""Names of folders without server code. Hidden folders are skipped, too."""
LARGEST_BYTES = 200 * 1024 * 1024


class Code(NamedTuple):
    """The packed folders of a run, and the paths of these folders on this machine."""

    packed: bytes
    roots: tuple[Path, ...]

    @classmethod
    def of(cls, run: RunConfig) -> Code | None:
        """Pack the roots of all server folders outside the installation. Return None if nothing must be copied."""
        roots = tuple(dict.fromkeys(root for each in run.servers.values() if (root := _root(each.folder))))
        if not roots or not run.settings.ray_copies_code:
            return None
        buffer, size = io.BytesIO(), 0
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for number, root in enumerate(roots):
                for file in _files(root):
                    size += file.stat().st_size
                    if size > LARGEST_BYTES:
                        raise LaunchError(
                            f"{root} has more than {LARGEST_BYTES >> 20} MB, which is too much to copy to every node. "
                            f"Move its data elsewhere, or put the folder at the same path on all nodes and set "
                            f"--ray-copies-code false."
                        )
                    # Leave `ZipInfo` its fixed date, so that equal code gives equal archives.
                    entry = zipfile.ZipInfo(f"{number}/{file.relative_to(root)}")
                    entry.external_attr = file.stat().st_mode << 16
                    archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, 1)
        return cls(buffer.getvalue(), roots)


class UnpackedCode:
    """A run's server folders, unpacked on this node."""

    def __init__(self, packed: bytes, roots: Sequence[Path], base: Path | None = None) -> None:
        """Unpack the code below `base` (default: the folder for temporary files), unless this was done before."""
        digest = hashlib.sha256(packed).hexdigest()[:16]
        self._folder = Path(base or tempfile.gettempdir(), f"nemo_gym_code-{os.getuid()}", digest)
        self._roots = {root: self._folder / str(number) for number, root in enumerate(roots)}
        if not self._folder.exists():
            self._unpack(packed)

    @property
    def roots(self) -> list[Path]:
        """This node's copies of the packed folders."""
        return list(self._roots.values())

    def moved(self, path: Path) -> Path:
        """Return the path that a file or folder has on this node. Only paths in the copied folders change."""
        for root, copy in self._roots.items():
            if path.is_relative_to(root):
                return copy / path.relative_to(root)
        return path

    def _unpack(self, packed: bytes) -> None:
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.parent.stat().st_uid != os.getuid():
            raise LaunchError(
                f"{self._folder.parent} belongs to another user, so the servers' code is not copied to it. Ask this "
                "user to remove the folder."
            )
        # Rename the folder when it is complete, because other processes of this node may look for it meanwhile.
        staged = Path(tempfile.mkdtemp(dir=self._folder.parent))
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for entry in archive.infolist():
                Path(archive.extract(entry, staged)).chmod(entry.external_attr >> 16 & 0o777)
        try:
            staged.rename(self._folder)
        except OSError:
            if not self._folder.exists():
                raise


def _root(folder: Path) -> Path | None:
    """Return the root of a server's folder; None if it is part of the installation, which every node has."""
    return None if folder.is_relative_to(INSTALL_ROOT) else ServerFolder.of(folder).root


def _files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name for name in subfolders if name not in SKIPPED and not name.startswith(".")
            and not Path(folder, name, "pyvenv.cfg").exists()
        )  # fmt: skip
        # Skip env.yaml and hidden files, which may contain secrets. The resolved settings already contain its values.
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith(".") and name != "env.yaml")
