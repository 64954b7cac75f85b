"""Search for words in the conversations of a run.

A fast scan of the raw bytes finds the lines that may contain the words. Only these lines are parsed and checked,
because escapes and other fields make matches in the raw text unreliable. The hits are stored in the index, and a later
search for the same words reads only what has changed since.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.opaque import cut_tokens
from nemo_gym.records.conversation import output_of, parsed, prompt_of
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index import store
from nemo_gym.viewer.index.conditions import selected_by
from nemo_gym.viewer.index.entry import LONGEST_PARSED
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.index.lines import LONGEST_LINE

PIECE_BYTES = 1 << 20
"""The number of bytes to search at once. It is small, because other requests wait during the search."""
LONGEST_GAP = 64 << 10
SEARCHES_KEPT = 16
WORTH_A_SCOPE = 0.5
"""If a filter selects at least this share of the bytes, search the whole run, so that other filters reuse the hits."""
SKIPPED = frozenset({
    "id", "type", "role", "status", "call_id", "image_url", "file_data", "data", "input_audio", "encrypted_content",
    "prompt_token_ids", "generation_token_ids", "generation_log_probs", "logprobs", "annotations",
})  # fmt: skip
"""Fields of items that do not contain text of the conversation."""

# A regular expression for characters whose form in the raw text is unknown, because a JSON serializer may escape them.
_UNSAFE = re.compile(r"[^\x20-\x7e]|[\"\\/<>&']")
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")
_OTHER_CAPITALS = "\u0130\u03f4\u1e9e\u2126\u212a\u212b"
"""Capital letters that `str.upper` does not return for their lower-case letters, such as ẞ and the Kelvin sign K."""


class Cancelled(Exception):
    """The error for a cancelled search or query."""


class _Rows(NamedTuple):
    """Records of one file, sorted by offset."""

    path: Path
    ids: array[int]
    offsets: array[int]
    sizes: array[int]


def search_of(
    db: sqlite3.Connection, paths: Mapping[int, Path], filter: Filter, is_cancelled: Callable[[], bool]
) -> int:
    """Search for the filter's words, and return the id of the stored search.

    If this search is stored already, search only the records that have changed since. Raise `Cancelled` if
    `is_cancelled` returns True during the search.
    """
    words = (filter.words or "").lower()
    # Ignore filters by stars, tags and comments, because these can change without a change of the index.
    others = replace(filter, words=None, star=None, tag=(), commented=None)
    db.execute("BEGIN")
    try:
        generation, changed = store.fact(db, "generation"), int(str(store.fact(db, "changed")))
        scope = _scope_of(db, words, others)
        found = db.execute("SELECT changed FROM searches WHERE words = ? AND scope = ?", (words, scope)).fetchone()
        searched = found[0] if found else 0
        rows = _rows(db, paths, others if scope else Filter(), searched) if searched < changed else []
    finally:
        db.execute("ROLLBACK")
    needle = Needle(words)
    hits = array("q", (hit for each in rows for hit in _hits_in(each, needle, is_cancelled)))
    return _stored(db, generation, (words, scope, changed), rows, hits)


def _scope_of(db: sqlite3.Connection, words: str, others: Filter) -> str:
    """Return an identifier of the selection to search in, or an empty string for the whole run."""
    if others.is_empty or db.execute("SELECT 1 FROM searches WHERE words = ? AND scope = ''", (words,)).fetchone():
        return ""
    selected = selected_by(others, fields_in(db), {})
    (total,) = db.execute("SELECT TOTAL(bytes) FROM rollouts").fetchone()
    (chosen,) = db.execute(f"SELECT TOTAL(bytes) {selected.clause}", selected.values).fetchone()
    return repr(others) if chosen < WORTH_A_SCOPE * total else ""


def _rows(db: sqlite3.Connection, paths: Mapping[int, Path], others: Filter, since: int) -> list[_Rows]:
    selected = selected_by(others, fields_in(db), {})
    if since:
        selected.add("changed > ?", since)
    found = {file: _Rows(path, array("q"), array("q"), array("q")) for file, path in paths.items()}
    statement = f"SELECT file, id, offset, bytes {selected.clause} ORDER BY file, offset"
    for file, number, offset, size in db.execute(statement, selected.values):
        rows = found[file]
        rows.ids.append(number)
        rows.offsets.append(offset)
        rows.sizes.append(size)
    return [rows for rows in found.values() if rows.ids]


def _stored(
    db: sqlite3.Connection, generation: object, search: tuple[str, str, int], rows: list[_Rows], hits: array[int]
) -> int:
    """Store the hits among these rows, and return the id of the search."""
    words, scope, changed = search
    db.execute("BEGIN IMMEDIATE")
    try:
        if store.fact(db, "generation") != generation:
            raise DataError("The results were rewritten during the search. Search again.")
        known = db.execute("SELECT id FROM searches WHERE words = ? AND scope = ?", (words, scope)).fetchone()
        if known is None:
            number = db.execute("INSERT INTO searches (words, scope) VALUES (?, ?)", (words, scope)).lastrowid
        else:
            number = known[0]
            for each in rows:
                db.executemany("DELETE FROM hits WHERE search = ? AND id = ?", ((number, id) for id in each.ids))
        db.executemany("INSERT OR IGNORE INTO hits VALUES (?, ?)", ((number, hit) for hit in hits))
        db.execute("UPDATE searches SET changed = ?, used_at = ? WHERE id = ?", (changed, time.time(), number))
        _forget_old(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return int(str(number))


def _forget_old(db: sqlite3.Connection) -> None:
    old = db.execute("SELECT id FROM searches ORDER BY used_at DESC LIMIT -1 OFFSET ?", (SEARCHES_KEPT,)).fetchall()
    db.executemany("DELETE FROM hits WHERE search = ?", old)
    db.executemany("DELETE FROM searches WHERE id = ?", old)


class Needle:
    """The words to find, regardless of case."""

    def __init__(self, words: str) -> None:
        self._words = words.lower()
        self._fragments = _fragments_of(self._words)

    def positions(self, piece: bytes, end_of_row: Callable[[int], int]) -> Iterator[int]:
        """Yield a position in each row that may contain the words. `end_of_row` maps a position to its row's end."""
        lowered = piece.lower()
        if not self._fragments:
            position = 0
            while position < len(piece):
                yield position
                position = end_of_row(position)
            return
        for fragment in self._fragments:
            position = lowered.find(fragment)
            while position >= 0:
                yield position
                position = lowered.find(fragment, end_of_row(position))
        escaped = _ESCAPED_ASCII.search(lowered) if b"\\u00" in lowered else None
        while escaped:
            yield escaped.start()
            escaped = _ESCAPED_ASCII.search(lowered, end_of_row(escaped.start()))

    def is_in(self, row: JsonObject) -> bool:
        """Return whether the conversation of a record contains the words."""
        return _contains_text([*prompt_of(row), *output_of(row)], self._words)


def _fragments_of(words: str) -> tuple[bytes, ...]:
    """Return lower-case byte strings, at least one of which occurs in every lower-cased JSON text with these words.

    If no such strings are known, return an empty tuple. Every row must then be parsed.
    """
    plain = max(_UNSAFE.split(words), key=len)
    known = plain or next((each for each in words if ord(each) > 0x7F), "")
    if not known:
        return ()
    forms = {plain} if plain else {known, known.upper(), known.title()}
    forms |= {each for each in _OTHER_CAPITALS if not set(known).isdisjoint(each.lower())}
    # `bytes.lower` changes only ASCII letters, such as hexadecimal digits of escapes. Other characters are unchanged.
    return tuple({each for form in forms for each in (form.encode("utf-8", "replace"), _escaped(form))})


def _escaped(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


def _hits_in(rows: _Rows, needle: Needle, is_cancelled: Callable[[], bool]) -> Iterator[int]:
    """Yield the ids of the rows whose conversation contains the words."""
    with rows.path.open("rb", buffering=0) as file:
        for first, end in _pieces(rows):
            if is_cancelled():
                raise Cancelled
            start, size = rows.offsets[first], rows.offsets[end - 1] + rows.sizes[end - 1] - rows.offsets[first]
            # Search only the start of a line longer than `LONGEST_LINE`. A match there counts without parsing.
            piece = os.pread(file.fileno(), min(size, LONGEST_LINE), start)

            def row_at(position: int, start: int = start) -> int:
                return bisect_right(rows.offsets, start + position) - 1

            def end_of_row(position: int, start: int = start) -> int:
                row = bisect_right(rows.offsets, start + position)
                return rows.offsets[row] - start if row < len(rows.offsets) else 1 << 62

            found = sorted({row_at(position) for position in needle.positions(piece, end_of_row)})
            for row in found:
                begin = rows.offsets[row] - start
                if _contains(piece[begin : begin + rows.sizes[row]], rows.sizes[row], needle):
                    yield rows.ids[row]


def _pieces(rows: _Rows) -> Iterator[tuple[int, int]]:
    """Yield ranges of neighbouring rows that are read at once."""
    first, count = 0, len(rows.ids)
    while first < count:
        start, last = rows.offsets[first], first
        end = start + rows.sizes[first]
        while (
            last + 1 < count
            and rows.offsets[last + 1] - end <= LONGEST_GAP
            and rows.offsets[last + 1] + rows.sizes[last + 1] - start <= PIECE_BYTES
        ):
            last += 1
            end = rows.offsets[last] + rows.sizes[last]
        yield first, last + 1
        first = last + 1


def _contains(raw: bytes, size: int, needle: Needle) -> bool:
    if len(raw) < size:
        return True
    text = cut_tokens(raw).text
    if len(text) > LONGEST_PARSED:
        return True
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and needle.is_in(row)


def _contains_text(waiting: list[object], words: str) -> bool:
    """Return whether a string in `waiting`, at any depth, contains the lower-case text `words`. Modify `waiting`."""
    # Do not recurse, because a hostile row may be nested too deeply.
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if words in value.lower():
                return True
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            arguments = value.get("arguments")
            if isinstance(arguments, str) and "\\" in arguments:
                waiting.append(parsed(arguments))
            waiting += [each for name, each in value.items() if name not in SKIPPED]
    return False
