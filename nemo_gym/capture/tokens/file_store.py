"""Store the tokens of rollouts in one file each, shared by all processes that see the same folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from uuid import uuid4

import orjson

from nemo_gym.capture.log_file import LogFile, locked_log, path_of_rollout
from nemo_gym.capture.tokens.entry import FrozenTokens, RolloutFrozen, TokenEntry
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.capture.tokens.prefixes import Prefix, Prefixes
from nemo_gym.jsonl import JsonObject, dump_line
from nemo_gym.opaque import loads_opaque

SUFFIX = ".tokens.jsonl"
FROZEN_LINE = b'{"frozen":true}\n'
HEAD_BEGIN, HEAD_END = b'{"log":"', b'"}\n'
ID_DIGITS = 32
HEAD_BYTES = len(HEAD_BEGIN) + ID_DIGITS + len(HEAD_END)


class FileTokenStore:
    """A `TokenSink` and `TokenSource` in a folder.

    Each line of a rollout's file is a call, a gap, or the mark that the rollout is frozen. The line of a call
    leaves out the part of its prompt that an earlier call contains, so a file grows only with the number of new
    tokens. A line is in the file when `put` returns, and survives the end of any process. It is not synced to the
    disk, because the rollout is lost anyway if the machine stops.
    """

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        self.root = Path(dir)
        self._prefixes = Prefixes()
        self._dropped: list[Path] = []
        self._lock = threading.Lock()

    def put(self, entry: TokenEntry) -> None:
        """Store a call. Raise `RolloutFrozen` if the rollout is frozen, and `ValueError` for unusable tokens."""
        entry.check(prompt=False)
        with locked_log(self._path(entry.rollout_id)) as log, self._lock:
            name = _name_of(log, entry.rollout_id)
            placed = self._prefixes.place(
                name, entry.model_call_id, entry.prompt_token_ids, entry.generation_token_ids
            )
            log.append(dump_line(_line_of(entry, placed.longest)))
            self._prefixes.remember(name, placed.added)

    def mark_incomplete(self, rollout_id: str, reason: str) -> None:
        """Record that tokens are missing, and why. Raise `RolloutFrozen` if the rollout is frozen."""
        with locked_log(self._path(rollout_id)) as log:
            _name_of(log, rollout_id)
            log.append(dump_line({"gap": reason}))

    def freeze(self, rollout_id: str) -> FrozenTokens:
        """Return the calls and gaps of a rollout, and reject later ones."""
        with locked_log(self._path(rollout_id)) as log:
            content = log.content()
            if not _is_frozen(log):
                log.append(FROZEN_LINE)
        return _read(rollout_id, content)

    def drop(self, rollout_id: str) -> None:
        """Empty a rollout's file. The file is kept until this store is closed, so that later calls are rejected."""
        path = self._path(rollout_id)
        with locked_log(path) as log:
            log.clear()
            log.append(FROZEN_LINE)
        self._dropped.append(path)

    def drop_ending(self, ending: str) -> None:
        """Drop all rollouts whose id matches this glob pattern at its end."""
        for path in self.root.glob(f"*{ending}{SUFFIX}"):
            self.drop(path.name.removesuffix(SUFFIX))

    def close(self) -> None:
        """Delete the files of dropped rollouts."""
        while self._dropped:
            self._dropped.pop().unlink(missing_ok=True)

    def _path(self, rollout_id: str) -> Path:
        return path_of_rollout(self.root, rollout_id, SUFFIX)


def _line_of(entry: TokenEntry, known: Prefix | None) -> JsonObject:
    # Check only the tokens to store. The rest of the prompt was checked when an earlier call stored it.
    prompt = entry.prompt_token_ids
    own = (Numbers(prompt.text[known.length :]) if known else prompt).checked(are_ids=True)
    return {
        "schema_version": entry.schema_version,
        "model_call_id": entry.model_call_id,
        "model": entry.model,
        "continues": {"model_call_id": known.model_call_id, "tokens": known.tokens} if known else None,
        "prompt_token_ids": own.fragment(),
        "generation_token_ids": entry.generation_token_ids.fragment(),
        "generation_log_probs": entry.generation_log_probs.fragment(),
        "routed_experts": entry.routed_experts,
        "output_items": entry.output_items,
        "token_item_index": entry.token_item_index,
        "created_at": entry.created_at,
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
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines[1:], start=2):
        if line == FROZEN_LINE or line.isspace():
            continue
        try:
            fields = loads_opaque(line)
            if "gap" in fields:
                gaps.append(str(fields["gap"]))
                continue
            entry = _entry_of(rollout_id, fields, entries)
        except orjson.JSONDecodeError:
            gaps.append(f"line {number} of the record is incomplete, because the process that wrote it was stopped")
        except (KeyError, TypeError, ValueError) as error:
            gaps.append(f"line {number} of the record cannot be used: {error!r}")
        else:
            entries[entry.model_call_id] = entry
    return FrozenTokens(tuple(entries.values()), tuple(gaps))


def _entry_of(rollout_id: str, fields: JsonObject, known: dict[str, TokenEntry]) -> TokenEntry:
    prompt = Numbers.of(fields["prompt_token_ids"])
    if continues := fields["continues"]:
        earlier = known[continues["model_call_id"]]
        known_parts = [earlier.prompt_token_ids]
        # The prompt begins with the whole prompt of the earlier call, and may go on with the tokens sampled after it.
        if continues["tokens"] > len(earlier.prompt_token_ids):
            known_parts.append(earlier.generation_token_ids)
        prompt = Numbers.joined([*known_parts, prompt])
    return TokenEntry(
        rollout_id=rollout_id,
        model_call_id=fields["model_call_id"],
        prompt_token_ids=prompt,
        generation_token_ids=Numbers.of(fields["generation_token_ids"]),
        generation_log_probs=Numbers.of(fields["generation_log_probs"]),
        routed_experts=fields["routed_experts"],
        output_items=fields["output_items"],
        token_item_index=fields["token_item_index"],
        model=fields["model"],
        created_at=fields["created_at"],
        schema_version=fields["schema_version"],
    )
