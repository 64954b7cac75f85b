"""`<output>_line_digests.bin`: eight bytes for each line that a run wrote, so that a later edit is noticed on resume.

A digest is written before its line, and the order of the digests does not matter. A digest without its line is
accepted, because lines can be lost or removed. A line without its digest was added or changed after the run wrote the
file, unless a crash of the machine lost the digest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from nemo_gym.errors import DataError
from nemo_gym.jsonl import DIGEST_BYTES, WriteFailed, line_digest, read_raw_lines
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.numbering import DigestSet
from nemo_gym.rollouts.numbering import digest_of as older_digest_of

LINES_NAMED = 5


class LineDigests:
    """The file with the digests of a run's results, open for appending."""

    def __init__(self, files: RunFiles) -> None:
        self._path = files.digests
        self._file = files.digests.open("ab", buffering=0)
        # A crash may have left an incomplete digest.
        self._file.truncate(self._path.stat().st_size // DIGEST_BYTES * DIGEST_BYTES)

    def add(self, line: bytes) -> None:
        """Append the digest of a line that is about to be written."""
        try:
            self._file.write(line_digest(line))
        except OSError as error:
            raise WriteFailed(f"{self._path}: cannot be written to ({error.strerror}).") from error

    def sync(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()


def accept_lines(files: RunFiles) -> None:
    """Replace all digests with those of the current lines of the results, so that a resumed run accepts the lines."""
    files.digests.unlink(missing_ok=True)
    _add(files, (line.raw for line in read_raw_lines(files.results)))


def check_lines(files: RunFiles) -> None:
    """If the results contain lines that the run did not write, raise a `DataError` that names them.

    If there are no digests, as after a run of an older version, accept all lines.
    """
    if not files.digests.exists():
        accept_lines(files)
        return
    written = files.digests.read_bytes()
    ends = range(DIGEST_BYTES, len(written) + 1, DIGEST_BYTES)
    known = DigestSet(int.from_bytes(written[end - DIGEST_BYTES : end], "little") for end in ends)
    count, unknown = 0, []
    for line in read_raw_lines(files.results):
        count += 1
        if _digest_of(line.raw) not in known and older_digest_of(line.raw) not in known:
            unknown.append((count, line))
    # A crash of the machine can lose the last digests. Accept as many unknown lines at the end as digests are missing.
    lost_from = count - max(0, count - len(known))
    if changed := [line.number for at, line in unknown if at <= lost_from]:
        others = f" and {len(changed) - LINES_NAMED} more lines" if len(changed) > LINES_NAMED else ""
        raise DataError(
            f"{', '.join(f'{files.results}:{number}' for number in changed[:LINES_NAMED])}{others}: added or "
            "changed since the run wrote the file. Restore the file, add --resume=force to "
            "accept all its lines, add --overwrite to start over, or choose another output."
        )
    _add(files, (line.raw for _, line in unknown))


def _digest_of(line: bytes) -> int:
    return int.from_bytes(line_digest(line), "little")


def _add(files: RunFiles, lines: Iterable[bytes]) -> None:
    with LineDigests(files) as digests:
        for line in lines:
            digests.add(line)
