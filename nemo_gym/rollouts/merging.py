"""Merge a sharded run: replace each entry in its results with the full rollout from the collector's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nemo_gym.config.wording import counted
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_line, line_digest, read_lines_at, read_rows, write_chunks
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.row import SHARD_KEY, Row, rows_in

OFFSET_BITS = 48
"""The number of bits for the offset in a line's place, enough for 256 TB. The higher bits are the file's number."""
SHOWN = 5


class Origin(NamedTuple):
    """The machine and the path of a file in which a collector has stored rollouts."""

    machine: str
    path: str

    def __str__(self) -> str:
        return f"{self.machine}:{self.path}"


@dataclass
class Kept:
    """An index of the lines in the given shards."""

    files: Sequence[Path]
    places: dict[int, int] = field(default_factory=dict)
    """The place of each line, keyed by the line's digest. Places and digests are integers, to save memory."""
    lines: Counter[Path] = field(default_factory=Counter)

    @classmethod
    def read(cls, files: Sequence[Path]) -> Kept:
        """Index the shards. They can be copies, because file names and the order of lines do not matter."""
        kept = cls(files)
        for number, path in enumerate(files):
            for offset, line in read_lines_at(path):
                kept.places.setdefault(int.from_bytes(line_digest(line.raw)), (number << OFFSET_BITS) | offset)
                kept.lines[path] += 1
        return kept


@dataclass
class Merged:
    """The result of a merge: the numbers of written rollouts, of missing rollouts and of unused lines."""

    rollouts: int = 0
    missing: Counter[Origin] = field(default_factory=Counter)
    """The number of rollouts that no shard contains, by the file in which a collector stored them."""
    unlisted: dict[Path, int] = field(default_factory=dict)
    """For each shard, the number of lines that the results do not list. The collection never received these rollouts,
    so it ran them again."""

    def describe_missing(self) -> str:
        """Return the number of missing rollouts, with the machines and files in which they were stored."""
        places = [f"{count} in {origin}" for origin, count in self.missing.most_common(SHOWN)]
        more = f" and {len(self.missing) - SHOWN} more files" if len(self.missing) > SHOWN else ""
        return f"{counted(self.missing.total(), 'rollout')} not found: {', '.join(places)}{more}"


def shards_of(results: Sequence[Path]) -> list[Path]:
    """Return the shards that the results refer to and that this machine can read."""
    names = {str(shard["path"]) for path in results for row in rows_in(path) if (shard := row.shard)}
    return [path for path in map(Path, sorted(names)) if path.is_file()]


def merge(results: Sequence[Path], shards: Sequence[Path], output: Path, *, leave_out: bool = False) -> Merged:
    """Write the full rollouts of sharded results atomically to a file, in the order of the results.

    Raise `DataError` before anything is written if rollouts are missing, unless `leave_out` is set.
    """
    kept = Kept.read(shards)
    merged = _matched(results, kept)
    if merged.missing and not leave_out:
        raise DataError(
            f"{', '.join(map(str, results))}: {merged.describe_missing()}. Copy these files to this machine and pass "
            "them all with --shards 'folder/*.jsonl'. If the files are lost, pass --leave-out-missing to merge "
            "without these rollouts."
        )
    with ExitStack() as stack:
        opened = [stack.enter_context(path.open("rb")) for path in shards]
        # Remove the digests of the replaced entries. Otherwise, a resumed run would reject the merged lines.
        RunFiles(results=output).digests.unlink(missing_ok=True)
        merged.rollouts = write_chunks(output, _whole(results, kept.places, opened))
    return merged


def _matched(results: Sequence[Path], kept: Kept) -> Merged:
    merged = Merged()
    listed: set[int] = set()
    for path in results:
        for row in rows_in(path):
            if (shard := row.shard) is None:
                continue
            place = kept.places.get(_digest_in(shard))
            if place is None:
                merged.missing[Origin(str(shard.get("machine")), str(shard.get("path")))] += 1
            else:
                listed.add(place)
    used = Counter(place >> OFFSET_BITS for place in listed)
    merged.unlisted = {
        path: extra for number, path in enumerate(kept.files) if (extra := kept.lines[path] - used[number])
    }
    return merged


def _whole(results: Sequence[Path], places: Mapping[int, int], shards: Sequence[BinaryIO]) -> Iterator[bytes]:
    for path in results:
        for fields in read_rows(path):
            row = Row(fields)
            shard = row.shard
            if shard is None:
                yield dump_line({key: value for key, value in fields.items() if key != SHARD_KEY})
            elif (place := places.get(_digest_in(shard))) is not None:
                file = shards[place >> OFFSET_BITS]
                file.seek(place & ((1 << OFFSET_BITS) - 1))
                yield file.readline().rstrip() + b"\n"


def _digest_in(shard: Mapping[str, object]) -> int:
    try:
        return int(str(shard["line"]), 16)
    except ValueError:
        return -1
