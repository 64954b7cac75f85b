"""Search for words in the conversations of a run.

A fast scan of the raw bytes finds the lines that may contain the words. Only these lines are parsed and checked,
because escapes and other fields make matches in the raw text unreliable. The hits are stored in the index, and a later
search for the same words reads only what has changed since.
"""

from __future__ import annotations

import re
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.opaque import cut_tokens
from nemo_gym.records.conversation import output_of, parsed, prompt_of
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index import store
from nemo_gym.viewer.index.conditions import Selected, selected_by
from nemo_gym.viewer.index.entry import LONGEST_PARSED
from nemo_gym.viewer.index.fields import fields_in
from nemo_gym.viewer.index.lines import LONGEST_LINE

READ_BYTES = 64 << 10
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
    with db:
        db.execute("BEGIN")
        generation, changed = store.fact(db, "generation"), int(str(store.fact(db, "changed")))
        scope = _scope_of(db, words, others)
        found = db.execute("SELECT changed FROM searches WHERE words = ? AND scope = ?", (words, scope)).fetchone()
        since = found[0] if found else 0
        selected = selected_by(others if scope else Filter(), fields_in(db), {})
        selected.add("changed > ?", since)
        hits = array("q", _hits(db, paths, selected, Needle(words), is_cancelled) if since < changed else ())
    with db:
        db.execute("BEGIN IMMEDIATE")
        if store.fact(db, "generation") != generation:
            raise DataError("The results were rewritten during the search. Search again.")
        db.execute("INSERT OR IGNORE INTO searches (words, scope) VALUES (?, ?)", (words, scope))
        (number,) = db.execute("SELECT id FROM searches WHERE words = ? AND scope = ?", (words, scope)).fetchone()
        if 0 < since < changed:
            gone = "id IN (SELECT id FROM rollouts WHERE changed > ?)"
            db.execute(f"DELETE FROM hits WHERE search = ? AND {gone}", (number, since))
        db.executemany("INSERT OR IGNORE INTO hits VALUES (?, ?)", ((number, hit) for hit in hits))
        db.execute("UPDATE searches SET changed = ?, used_at = ? WHERE id = ?", (changed, time.time(), number))
        _forget_old(db)
    return int(number)


def _scope_of(db: sqlite3.Connection, words: str, others: Filter) -> str:
    """Return an identifier of the selection to search in, or an empty string for the whole run."""
    if others.is_empty or db.execute("SELECT 1 FROM searches WHERE words = ? AND scope = ''", (words,)).fetchone():
        return ""
    selected = selected_by(others, fields_in(db), {})
    (total,) = db.execute("SELECT TOTAL(bytes) FROM rollouts").fetchone()
    (chosen,) = db.execute(f"SELECT TOTAL(bytes) {selected.clause}", selected.values).fetchone()
    return repr(others) if chosen < WORTH_A_SCOPE * total else ""


def _forget_old(db: sqlite3.Connection) -> None:
    old = db.execute("SELECT id FROM searches ORDER BY used_at DESC LIMIT -1 OFFSET ?", (SEARCHES_KEPT,)).fetchall()
    db.executemany("DELETE FROM hits WHERE search = ?", old)
    db.executemany("DELETE FROM searches WHERE id = ?", old)


class Needle:
    """The words to find, regardless of case."""

    def __init__(self, words: str) -> None:
        self._words = words.lower()
        self._fragments = _fragments_of(self._words)

    def may_be_in(self, raw: bytes) -> bool:
        """Return whether the JSON text of a record may contain the words. This is much faster than parsing it."""
        lowered = raw.lower()
        return (
            not self._fragments
            or any(fragment in lowered for fragment in self._fragments)
            or (b"\\u00" in lowered and _ESCAPED_ASCII.search(lowered) is not None)
        )

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


def _hits(
    db: sqlite3.Connection,
    paths: Mapping[int, Path],
    selected: Selected,
    needle: Needle,
    is_cancelled: Callable[[], bool],
) -> Iterator[int]:
    """Yield the ids of the selected records whose conversation contains the words."""
    rows = db.execute(f"SELECT file, id, offset, bytes {selected.clause} ORDER BY file, offset", selected.values)
    for file, in_file in groupby(rows, key=itemgetter(0)):
        with paths[file].open("rb", buffering=READ_BYTES) as opened:
            for _, number, offset, size in in_file:
                if is_cancelled():
                    raise Cancelled
                opened.seek(offset)
                # Search only the start of a line longer than `LONGEST_LINE`. A match there counts without parsing.
                raw = opened.read(min(size, LONGEST_LINE))
                if needle.may_be_in(raw) and _contains(raw, size, needle):
                    yield number


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
