"""Extract files from downloaded zip archives, without trusting the file names and sizes in them."""

from __future__ import annotations

import lzma
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from nemo_gym.errors import DataError
from nemo_gym.jsonl import replacing

MOST_BYTES = 16 * 2**30
"""The maximum size of all extracted files together."""
PART_BYTES = 1 << 20
# RuntimeError is raised for an encrypted file, NotImplementedError for an unknown compression, and UnicodeDecodeError
# for a file name that cannot be decoded.
DAMAGES = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError, UnicodeDecodeError,
)  # fmt: skip


def extract(
    archive: Path, folder: Path, place: Callable[[PurePosixPath], Path | str | None], *, most_bytes: int = MOST_BYTES
) -> list[Path]:
    """Extract files of a zip archive into a folder, and return their paths.

    `place` gets the path of each file in the archive, and returns its path in the folder, or None to skip the file.
    Each file is written atomically, or kept if it is already there with the same content. Raise `DataError` if the
    archive is damaged or encrypted, if a path leads out of the folder, or if all files together exceed `most_bytes`.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _placed(archive, opened, folder, place)
            size = sum(member.file_size for member in members.values())
            if size > most_bytes:
                raise DataError(
                    f"{archive}: its files have {size:,} bytes, more than {most_bytes:,}. Check that it is the right "
                    "archive."
                )
            for path, member in members.items():
                _extract(opened, member, path)
    except DAMAGES as error:
        raise _unreadable(archive, error) from error
    except OSError as error:
        # An OSError without an error number is not a disk problem: bz2 raises it for a damaged archive.
        if error.errno is None:
            raise _unreadable(archive, error) from error
        raise DataError(
            f"{error.filename or folder}: cannot be extracted ({error.strerror}). Check the disk space and the "
            "permissions."
        ) from error
    return list(members)


def _unreadable(archive: Path, error: Exception) -> DataError:
    return DataError(f"{archive}: cannot be read as a zip archive ({error}). Delete it to fetch it again.")


def _placed(
    archive: Path, opened: zipfile.ZipFile, folder: Path, place: Callable[[PurePosixPath], Path | str | None]
) -> dict[Path, zipfile.ZipInfo]:
    """Return the archive members to extract, keyed by their target paths."""
    members: dict[Path, zipfile.ZipInfo] = {}
    for member in opened.infolist():
        target = None if member.is_dir() else place(PurePosixPath(member.filename))
        if target is None:
            continue
        path = folder / target
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{archive}: {member.filename!r} leads out of {folder}. Do not use this archive.")
        other = members.setdefault(path, member)
        if (other.CRC, other.file_size) != (member.CRC, member.file_size):
            raise DataError(
                f"{archive}: {other.filename!r} and {member.filename!r} would both be extracted to {path}, but differ."
                " Do not use this archive."
            )
    return members


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    if path.is_file() and path.stat().st_size == member.file_size and _checksum(path) == member.CRC:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # The bytes need not be counted: zipfile never returns more than the size in the archive's directory, and `extract`
    # has checked the sum of these sizes.
    with replacing(path) as partial, opened.open(member) as source, partial.open("wb") as target:
        shutil.copyfileobj(source, target, PART_BYTES)


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(PART_BYTES):
            checksum = zlib.crc32(part, checksum)
    return checksum
