"""Trees of files, read from folders and from untrusted archives, and written as archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MOST_BYTES, MOST_ENTRIES = 64 * 2**20, 20_000
MODES = 0o777
"""The rights that are kept: neither set-uid nor sticky bits."""


class TreeError(ValueError):
    """The error for a folder or an archive that cannot be read as a tree."""


class Entry(NamedTuple):
    """A file, a folder or a symbolic link."""

    mode: int = 0o755
    content: bytes | None = None
    """The bytes of a file; None for folders and links."""
    target: str = ""
    """The target of a symbolic link; empty for files and folders."""

    @property
    def is_folder(self) -> bool:
        return self.content is None and not self.target


Tree = Mapping[str, Entry]
"""The entries by their relative path. A folder is listed if it has a mode of its own or is empty."""


class Read(NamedTuple):
    """The entries of an archive that can be used, and the reason for each other one."""

    tree: dict[str, Entry]
    withheld: dict[str, str]


def paths_below(folder: Path) -> list[Path]:
    """Return the paths in a folder, except for byte code, which Python and installers write there."""
    return [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.relative_to(folder).parts]


def tree_of(folder: Path) -> dict[str, Entry]:
    """Return the tree of a trusted folder. Raise `TreeError` for links that lead out of it and for special files."""
    found: dict[str, Entry] = {}
    total = 0
    for path in paths_below(folder):
        name, about = path.relative_to(folder).as_posix(), path.lstat()
        if stat.S_ISLNK(about.st_mode):
            found[name] = Entry(target=path.readlink().as_posix())
            if not _leads_inside(name, found[name].target):
                raise TreeError(f"{path} is a link that leads out of the folder")
        elif stat.S_ISREG(about.st_mode):
            if (total := total + about.st_size) > MOST_BYTES:
                raise TreeError(f"{folder} has more than {MOST_BYTES} bytes")
            found[name] = Entry(0o755 if about.st_mode & 0o100 else 0o644, path.read_bytes())
        elif stat.S_ISDIR(about.st_mode):
            found[name] = Entry()
        else:
            raise TreeError(f"{path} is neither a file nor a folder")
    return found


def archive_of(tree: Tree) -> bytes:
    """Return a tar archive in gzip."""
    return gzip.compress(_tar_of(tree), mtime=0)


def digest_of(tree: Tree) -> str:
    """Return the SHA-256 of a tree's names, modes and contents. It does not depend on the release of zlib."""
    return hashlib.sha256(_tar_of(tree)).hexdigest()


def _tar_of(tree: Tree) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, entry in sorted(tree.items()):
            member = tarfile.TarInfo(name)
            member.mode = entry.mode
            if entry.content is not None:
                member.size = len(entry.content)
            else:
                member.type = tarfile.SYMTYPE if entry.target else tarfile.DIRTYPE
                member.linkname = entry.target
            archive.addfile(member, io.BytesIO(entry.content or b""))
    return target.getvalue()


def read_archive(archive: bytes) -> Read:
    """Read an untrusted tar archive in gzip, without writing a file.

    Links that lead out of the tree, entries below links and special files are withheld. Raise `TreeError` for a
    malformed or too large archive.
    """
    read, total = Read({}, {}), 0
    try:
        with gzip.open(io.BytesIO(archive)) as packed:
            content = packed.read(MOST_BYTES + 1)
        _check_size(len(content), 0)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as members:
            for number, member in enumerate(members, start=1):
                # A sparse file can be larger than its archive.
                total += member.size
                _check_size(total, number)
                _read_member(member, members, read)
    except TreeError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        raise TreeError(f"it is not a tar.gz archive: {error}") from error
    withhold_hidden(read)
    return read


def _check_size(count: int, entries: int) -> None:
    if count > MOST_BYTES or entries > MOST_ENTRIES:
        raise TreeError(f"it has more than {MOST_BYTES} bytes or {MOST_ENTRIES} entries")


def withhold_hidden(read: Read) -> None:
    """Withhold the entries below a file or a link, which cannot be written."""
    for name in list(read.tree):
        if any(
            above in read.tree and not read.tree[above].is_folder for above in map(str, PurePosixPath(name).parents)
        ):
            del read.tree[name]
            read.withheld[name] = "it is below a file or a link"


def _read_member(member: tarfile.TarInfo, members: tarfile.TarFile, read: Read) -> None:
    name, mode = posixpath.normpath(member.name), member.mode & MODES
    if name == ".":
        return
    if name.startswith(("/", "../")) or name == "..":
        read.withheld[name] = "it is outside the workspace"
    elif member.isdir():
        read.tree[name] = Entry(mode)
    elif member.isfile():
        reader = members.extractfile(member)
        assert reader is not None, "a regular file can be read"
        read.tree[name] = Entry(mode, reader.read())
    elif member.issym() and _leads_inside(name, member.linkname):
        read.tree[name] = Entry(target=member.linkname)
    elif member.islnk() and (same := read.tree.get(posixpath.normpath(member.linkname))) is not None:
        read.tree[name] = same
    else:
        read.withheld[name] = "it is a link that leads out" if member.issym() else "it is not a file, folder or link"


def _leads_inside(name: str, target: str) -> bool:
    """Return whether a link leads to a path in its tree, even if other parts of the target are links."""
    parts = PurePosixPath(target).parts
    ups = sum(part == ".." for part in parts)
    # Allow `..` only at the start, because after another link it may lead elsewhere than its text says.
    return bool(target) and target[0] != "/" and ".." not in parts[ups:] and ups <= len(PurePosixPath(name).parts) - 1
