"""Store the tokens of rollouts in one file each, shared by all processes that see the same folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from uuid import uuid4

from nemo_gym.capture.log_file import LogFile, locked_log
from nemo_gym.capture.store import CallStore, parsed_lines
from nemo_gym.capture.tokens.entry import FrozenTokens, RolloutFrozen, TokenEntry
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.capture.tokens.prefixes import Prefix, Prefixes
from nemo_gym.jsonl import JsonObject, dump_line
from nemo_gym.opaque import loads_opaque
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS

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


def _line_of(entry: TokenEntry, known: Prefix | None) -> JsonObject:
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
