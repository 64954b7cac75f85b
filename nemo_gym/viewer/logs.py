"""Find a failure in the log of the server that failed. Logs may be large, so only parts of them are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nemo_gym.paths import resolved
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import Row
from nemo_gym.viewer.shortening import cut

SEARCHED_BYTES = 64 * 1024 * 1024
"""The number of bytes at the end of a log that are searched."""
COUNTED_BYTES = 512 * 1024 * 1024
"""The maximum offset for which a line number is determined, because counting the lines takes time."""
CHUNK_BYTES = 4 * 1024 * 1024
LINES_AROUND = 20
MOST_LINES = 200
"""The maximum number of lines to show from the found line on, if they include tracebacks."""
MOST_NEEDLES = 8
"""The maximum number of search terms, because the search for each may read a large log once more."""
LONGEST_LINE = 2_000
NEEDLE_CHARACTERS = 120
SHORTEST_NEEDLE = 12
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
"""A regular expression for terminal control codes, such as colours. They are removed from the shown lines."""
TRACEBACK = b"Traceback (most recent call last):"


class Window(NamedTuple):
    """Lines of a log, with the offset of the first one. `found` is the index of the line that matched, if any."""

    offset: int
    lines: list[bytes]
    found: int | None


def log_of_failure(row: Row, files: RunFiles, given_paths: Sequence[Path]) -> Mapping[str, object] | None:
    """Return the lines of a log around a failure, in the format of `log` in api.ts, or None if there is no log.

    Search the log of the failed server, and then that of the agent. In each log, search for the rollout's id, and then
    for the failure's message. If nothing is found, return the last lines of the first log that exists.
    """
    if row.failure_class is None:
        return None
    needles = list(islice(_needles(row), MOST_NEEDLES))
    # Resolve only the folder of the results. The log folder of a run from another person may be a link to a folder
    # whose files must not be shown.
    here = files.results.parent
    logs = (resolved(here) / path.relative_to(here) for path in (files.logs, files.earlier_place_of(files.logs)))
    folders = [*logs, *(resolved(path) for path in given_paths if path.is_dir())]
    ends: Mapping[str, object] | None = None
    searched: set[Path] = set()
    for server, path in _candidates(row, files):
        if path in searched or not _is_log_in(path, folders):
            continue
        searched.add(path)
        if (found := _lines_of(server, path, needles)) is not None:
            if found["marked"]:
                return found
            ends = ends or found
    return ends


def _lines_of(server: str, path: Path, needles: Sequence[re.Pattern[bytes]]) -> Mapping[str, object] | None:
    try:
        with path.open("rb") as file:
            window = _window(file, needles)
            first_line = _lines_before(file, window.offset)
    except OSError:
        return None
    if not window.lines:
        return None
    lines = [_readable(line) for line in window.lines]
    marked = [] if window.found is None else [window.found]
    found = {"path": str(path), "first_line": first_line, "lines": lines, "marked": marked}
    return {"server": cut(server, LONGEST_LINE), **found}


def _candidates(row: Row, files: RunFiles) -> Iterator[tuple[str, Path]]:
    recorded, failed = row.failure_log, row.failure_server
    logs = files.logs if files.logs.exists() else files.earlier_place_of(files.logs)
    if isinstance(recorded, str) and recorded:
        server = str(failed or Path(recorded).stem)
        # Look in the current folder of the run first, because the run may have been moved.
        yield server, logs / Path(recorded).name
        yield server, Path(recorded)
    for name in (failed, row.agent):
        if isinstance(name, str) and name:
            yield name, logs / f"{Path(name).name}.log"


def _is_log_in(path: Path, folders: Iterable[Path]) -> bool:
    try:
        found = resolved(path)
        return found.suffix == ".log" and found.is_file() and any(map(found.is_relative_to, folders))
    except (OSError, ValueError):
        return False


def _needles(row: Row) -> Iterator[re.Pattern[bytes]]:
    try:
        rollout_id = row.rollout_id
    except ValueError:
        rollout_id = None
    if rollout_id is not None:
        # Require the word "rollout" before the id, because an id such as 1-0 is also part of dates and of other ids.
        yield re.compile(rb"rollout[ =:'\"]+" + re.escape(rollout_id.encode()) + rb"(?![\w.-]*\w)")
    for line in (row.failure_message or "").splitlines():
        text = line.strip()[:NEEDLE_CHARACTERS]
        # Also search without the server's name, because servers put it before the message of an error.
        without_server = text.removeprefix(f"{row.failure_server}: ")
        for needle in dict.fromkeys((text, without_server)):
            if len(needle) >= SHORTEST_NEEDLE:
                yield re.compile(re.escape(needle.encode(errors="replace")))


def _window(file: BinaryIO, needles: Sequence[re.Pattern[bytes]]) -> Window:
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - SEARCHED_BYTES)
    for needle in needles:
        at = _last_match(file, needle, start, size)
        if at is not None:
            return _around(file, at, size)
    return _around(file, size, size)._replace(found=None)


def _last_match(file: BinaryIO, needle: re.Pattern[bytes], start: int, end: int) -> int | None:
    """Return the offset of the last match. Search backwards in chunks that overlap, so that no match is cut."""
    overlap = 8 * NEEDLE_CHARACTERS
    while end > start:
        begin = max(start, end - CHUNK_BYTES)
        file.seek(begin)
        found = list(needle.finditer(file.read(end - begin)))
        if found:
            return begin + found[-1].start()
        end = begin + overlap if begin > start else start
    return None


def _around(file: BinaryIO, at: int, size: int) -> Window:
    reach = LINES_AROUND * LONGEST_LINE
    far = MOST_LINES * LONGEST_LINE
    begin = max(0, at - reach)
    file.seek(begin)
    before = file.read(at - begin)
    after = file.read(min(far, size - at))
    head, tail = before.split(b"\n"), after.split(b"\n")
    skipped = max(0, len(head) - 1 - LINES_AROUND)
    # Skip the first line, which may be incomplete, because the bytes before it were not read.
    if not skipped and begin > 0 and len(head) > 1:
        skipped = 1
    offset = begin + sum(len(line) + 1 for line in head[:skipped])
    lines = [*head[skipped:-1], head[-1] + tail[0], *tail[1 : _end_of_tracebacks(tail)]]
    found = len(head) - 1 - skipped
    if lines and not lines[-1]:
        lines.pop()
    return Window(offset, lines, found)


def _end_of_tracebacks(tail: Sequence[bytes]) -> int:
    """Return how many lines to show from the found line on. Show tracebacks in full, up to `MOST_LINES` lines."""
    end = min(LINES_AROUND + 1, len(tail))
    at = _next_traceback(tail, 0, end)
    while at is not None:
        # The first line that is not indented is the error's message. Its further lines may be indented.
        at = _after_indented(tail, _after_indented(tail, at + 1) + 1)
        end = max(end, min(at, len(tail), MOST_LINES))
        # In a chain of errors, a blank line, a sentence and another blank line separate two tracebacks.
        at = _next_traceback(tail, at, max(at + 4, LINES_AROUND + 1))
    return end


def _next_traceback(lines: Sequence[bytes], begin: int, end: int) -> int | None:
    return next((at for at in range(begin, min(end, len(lines))) if TRACEBACK in lines[at]), None)


def _after_indented(lines: Sequence[bytes], at: int) -> int:
    while at < len(lines) and lines[at][:1].isspace():
        at += 1
    return at


def _lines_before(file: BinaryIO, offset: int) -> int | None:
    """Return the line number (from 1) of an offset, or None if counting lines up to the offset takes too long."""
    if offset > COUNTED_BYTES:
        return None
    file.seek(0)
    count, left = 1, offset
    while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
        count += chunk.count(b"\n")
        left -= len(chunk)
    return count


def _readable(line: bytes) -> str:
    return cut(CONTROL.sub("", line.decode("utf-8", "replace")), LONGEST_LINE)
