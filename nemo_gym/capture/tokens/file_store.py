"""Store the tokens of rollouts in one file each, shared by all processes that see the same folder."""

from __future__ import annotations

import os
import threading
from bisect import insort
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from nemo_gym.capture.log_file import LogFile, locked_log
from nemo_gym.capture.store import CallStore, parsed_lines
from nemo_gym.capture.tokens.entry import FrozenTokens, RolloutFrozen, TokenEntry
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.jsonl import JsonObject, dump_line
from nemo_gym.opaque import loads_opaque
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS

MOST_PREFIXES = 131_072
"""Maximum number of prefixes that a process remembers. They take about 40 MB.

If the prefixes of a rollout are forgotten, its next prompt is stored completely.
"""
DIGEST_BYTES = 16
_COMMA = ord(",")


class Prefix(NamedTuple):
    """Recorded tokens with which a later prompt may begin: a call's prompt, or its prompt and sampled tokens."""

    length: int
    """The length of the tokens' text in bytes."""
    digest: bytes
    """The hash of the tokens' text. It is kept instead of the tokens, which would fill the memory of a server."""
    model_call_id: str
    tokens: int


class Placement(NamedTuple):
    """The longest recorded prefix of a call's prompt, and the prefixes that the call itself adds."""

    longest: Prefix | None
    """The longest recorded prefix with which the call's prompt begins."""
    added: tuple[Prefix, ...]
    """The call's own prefixes: its prompt, and its prompt with the sampled tokens."""


class Prefixes:
    """The known prefixes of the prompts of all rollouts that this process records."""

    def __init__(self, most: int = MOST_PREFIXES) -> None:
        self._most = most
        self._count = 0
        self._known: OrderedDict[bytes, list[Prefix]] = OrderedDict()

    def place(self, log: bytes, model_call_id: str, prompt: Numbers, sampled: Numbers) -> Placement:
        """Return the longest known prefix of a call's prompt, and the prefixes that the call itself adds.

        `log` is the unique name of the rollout's record.
        """
        known = self._known.get(log, [])
        text = memoryview(prompt.text)
        hashed, begin, longest = sha256(), 0, None
        for each in known:
            if each.length > len(text):
                break
            if each.length and text[each.length - 1] != _COMMA:
                continue
            # Continue the hash of the previous prefix, so that one pass over the prompt checks all prefixes.
            hashed.update(text[begin : each.length])
            begin = each.length
            if hashed.digest()[:DIGEST_BYTES] == each.digest:
                longest = each
        count = (
            prompt.text.count(b",") if longest is None else longest.tokens + prompt.text.count(b",", longest.length)
        )
        hashed.update(text[begin:])
        whole_prompt = Prefix(len(text), hashed.digest()[:DIGEST_BYTES], model_call_id, count)
        hashed.update(sampled.text)
        length = len(text) + len(sampled.text)
        whole = Prefix(length, hashed.digest()[:DIGEST_BYTES], model_call_id, count + len(sampled))
        return Placement(longest, (whole_prompt, whole))

    def remember(self, log: bytes, added: tuple[Prefix, ...]) -> None:
        """Remember a call's prefixes for the later prompts of its rollout. The call must be stored already."""
        known = self._known.setdefault(log, [])
        self._known.move_to_end(log)
        for each in added:
            insort(known, each)
        self._count += len(added)
        # Forget the least recently used rollouts. This call's rollout is kept, even if it alone exceeds the limit.
        while self._count > self._most and len(self._known) > 1:
            self._count -= len(self._known.popitem(last=False)[1])


FROZEN_LINE = b'{"frozen":true}\n'
HEAD_BEGIN, HEAD_END = b'{"log":"', b'"}\n'
ID_DIGITS = 32
HEAD_BYTES = len(HEAD_BEGIN) + ID_DIGITS + len(HEAD_END)


class FileTokenStore(CallStore):
    """A `TokenSink` and `TokenSource` in a folder.

    Each line of a rollout's file is a call, a gap, or the mark that the rollout is frozen. The line of a call
    leaves out the part of its prompt that an earlier call contains, so a file grows only with the number of new
    tokens. A line is in the file when `put` returns, and survives the end of any process. It is not synced to the
    disk, because the rollout is lost anyway if the machine stops.
    """

    SUFFIX = ".tokens.jsonl"

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        super().__init__(dir)
        self._prefixes = Prefixes()
        self._dropped: list[Path] = []
        self._lock = threading.Lock()

    def put(self, entry: TokenEntry) -> None:
        """Store a call. Raise `RolloutFrozen` if the rollout is frozen, and `ValueError` for unusable tokens."""
        entry.check(prompt=False)
        with locked_log(self.path_for(entry.rollout_id)) as log, self._lock:
            name = _name_of(log, entry.rollout_id)
            placed = self._prefixes.place(
                name, entry.model_call_id, entry.prompt_token_ids, entry.generation_token_ids
            )
            log.append(dump_line(_line_of(entry, placed.longest)))
            self._prefixes.remember(name, placed.added)

    def mark_incomplete(self, rollout_id: str, reason: str) -> None:
        """Record that tokens are missing, and why. Raise `RolloutFrozen` if the rollout is frozen."""
        with locked_log(self.path_for(rollout_id)) as log:
            _name_of(log, rollout_id)
            log.append(dump_line({"gap": reason}))

    def freeze(self, rollout_id: str) -> FrozenTokens:
        """Return the calls and gaps of a rollout, and reject later ones."""
        with locked_log(self.path_for(rollout_id)) as log:
            content = log.content()
            if not _is_frozen(log):
                log.append(FROZEN_LINE)
        return _read(rollout_id, content)

    def drop(self, rollout_id: str) -> None:
        """Empty a rollout's file. The file is kept until this store is closed, so that later calls are rejected."""
        path = self.path_for(rollout_id)
        with locked_log(path) as log:
            log.clear()
            log.append(FROZEN_LINE)
        self._dropped.append(path)

    def drop_ending(self, ending: str) -> None:
        """Drop all rollouts whose id matches this glob pattern at its end."""
        for path in self.root.glob(f"*{ending}{self.SUFFIX}"):
            self.drop(path.name.removesuffix(self.SUFFIX))

    def close(self) -> None:
        """Delete the files of dropped rollouts."""
        while self._dropped:
            self._dropped.pop().unlink(missing_ok=True)


def _line_of(entry: TokenEntry, known: Prefix | None) -> dict[str, object]:
    # Check only the tokens to store. The rest of the prompt was checked when an earlier call stored it.
    prompt = entry.prompt_token_ids
    own = (Numbers(prompt.text[known.length :]) if known else prompt).checked(are_ids=True)
    return {
        **vars(entry),
        "continues": {"model_call_id": known.model_call_id, "tokens": known.tokens} if known else None,
        "prompt_token_ids": own.fragment(),
        "generation_token_ids": entry.generation_token_ids.fragment(),
        "generation_log_probs": entry.generation_log_probs.fragment(),
    }


def _name_of(log: LogFile, rollout_id: str) -> bytes:
    """Return the unique name of a log; an empty log gets one first. Raise `RolloutFrozen` if the rollout has ended."""
    if _is_frozen(log):
        raise RolloutFrozen(f"rollout {rollout_id} has ended, so no more tokens can be recorded for it")
    if not log.size:
        # Choose a new name, because a rollout with the same id may be recorded again after the store has been closed.
        log.append(HEAD_BEGIN + uuid4().hex.encode() + HEAD_END)
    return log.beginning(HEAD_BYTES)


def _is_frozen(log: LogFile) -> bool:
    return log.ending(len(FROZEN_LINE)) == FROZEN_LINE


def _read(rollout_id: str, content: bytes) -> FrozenTokens:
    entries: dict[str, TokenEntry] = {}
    gaps: list[str] = []
    for number, fields in parsed_lines(content, loads_opaque):
        if fields is None:
            gaps.append(f"line {number} of the record is incomplete, because the process that wrote it was stopped")
        elif "gap" in fields:
            gaps.append(str(fields["gap"]))
        elif not fields.keys() & {"log", "frozen"}:
            try:
                entry = _entry_of(rollout_id, fields, entries)
            except (KeyError, TypeError, ValueError) as error:
                gaps.append(f"line {number} of the record cannot be used: {error!r}")
            else:
                entries[entry.model_call_id] = entry
    return FrozenTokens(tuple(entries.values()), tuple(gaps))


def _entry_of(rollout_id: str, fields: JsonObject, known: dict[str, TokenEntry]) -> TokenEntry:
    numbers = {name: Numbers.of(fields[name]) for name in REQUIRED_TOKEN_METADATA_FIELDS}
    if continues := fields.pop("continues"):
        earlier = known[continues["model_call_id"]]
        known_parts = [earlier.prompt_token_ids]
        # The prompt begins with the whole prompt of the earlier call, and may go on with the tokens sampled after it.
        if continues["tokens"] > len(earlier.prompt_token_ids):
            known_parts.append(earlier.generation_token_ids)
        numbers["prompt_token_ids"] = Numbers.joined([*known_parts, numbers["prompt_token_ids"]])
    return TokenEntry(**{**fields, **numbers, "rollout_id": rollout_id})
