"""One rollout with everything that its page shows.

A reply has at most about 2 MB of items, because a single line of a rollouts file may be 200 MB long. Long texts and
values are cut (see `shortening`). With `&from=`, the page requests the items that did not fit. `/api/raw` streams the
whole line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from nemo_gym.errors import DataError
from nemo_gym.jsonl import parse_row
from nemo_gym.records.conversation import object_at, objects_in
from nemo_gym.records.usage import usage_of
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import FAILURE_OF_RELEASE_0_7, POLICY_KEYS, PRIVATE_PREFIX, Row, TaskKey
from nemo_gym.viewer.conversation import Conversation, MediaPart, conversation_of
from nemo_gym.viewer.index.place import Missing, Place
from nemo_gym.viewer.judgements import SHOWN_AS_JUDGEMENTS, judgements_of
from nemo_gym.viewer.library import RunView
from nemo_gym.viewer.logs import log_of_failure
from nemo_gym.viewer.media import Medium, content_of
from nemo_gym.viewer.rerun import rerun_of
from nemo_gym.viewer.shortening import cut, shortened, shortened_fields, size_of
from nemo_gym.viewer.timeline import seconds_of_calls, timeline_of

ITEMS_BYTES = 2_000_000
MOST_TOOLS = 256
LONGEST_DESCRIPTION = 4_000
WHY_KEY = "why"
"""The field in which graders give the reason for a reward."""
LONGEST_REASON = 600
MOST_FAILED = 5
NO_ANSWER = "the rollout ended with a tool call, without an answer"
LARGEST_RECORD = 512 * 1024 * 1024
"""A record with more than this many bytes is not parsed, because parsing takes several times its size in memory."""
MOST_VALUES = 20_000_000
"""A record with more than this many values is not parsed, because each may take 100 bytes of memory."""

SHOWN_ELSEWHERE = {
    "responses_create_params", "response", "reward", "reward_components", "agent_ref", "mask_sample",
    "instance_config", "ng_model_call_capture", "ng_trajectory", "ng_agent_observations", "policy_version",
    "policy_version_at_end", "policy_versions",
    *POLICY_KEYS,
}  # fmt: skip
"""Fields that the page omits from its lists of fields. It shows most of them elsewhere, but not the `POLICY_KEYS`."""


class Shown(NamedTuple):
    """The record of one attempt, with its run, its position and its planned row."""

    run: RunView
    place: Place
    record: Row
    planned: Row | None
    """The row that the agent received. None if this row is unknown, or if the record is this row."""


def place_of(run: RunView, key: TaskKey, attempt: int | None = None) -> Place:
    """Find the record of a rollout, or of one of its attempts. Raise `Missing` if it does not exist."""
    current = run.index.place(key)
    if current is None:
        raise Missing(f"The run {run.name} has no rollout {key}. Its files may have changed: reload the page.")
    if attempt is None:
        return current
    places = _attempts_of(run, key, current)
    if attempt not in places:
        numbers = ", ".join(map(str, sorted(places)))
        raise Missing(f"{run.files.results}: rollout {key} has no attempt {attempt}. Its attempts: {numbers}.")
    return places[attempt]


def shown_at(run: RunView, place: Place) -> Shown:
    """Read the record at a position. Raise `DataError` if the record is too large."""
    if place.bytes > LARGEST_RECORD:
        problem = f"the record has {place.bytes:,} bytes, too many to show. Download it instead."
        raise DataError(f"{place.path}:{place.line}: {problem}")
    raw = place.raw()
    if (values := raw.count(b",")) > MOST_VALUES:
        problem = f"the record has about {values:,} values, too many to show. Download it instead."
        raise DataError(f"{place.path}:{place.line}: {problem}")
    record = Row(parse_row(raw, place.path, place.line))
    row = run.index.planned(place.key)
    return Shown(run, place, record, None if row is None or row == place else row.read())


def conversation_at(shown: Shown) -> Conversation:
    """Return the conversation of a record. The URLs of its images and sounds are under /api/media."""
    place = shown.place
    query = {"run": shown.run.id, "task": place.key.task, "repeat": place.key.repeat, "attempt": place.attempt}

    def address_of(number: int, _: MediaPart) -> str:
        return f"/api/media?{urlencode({**query, 'n': number})}"

    return conversation_of(shown.record.fields, address_of, seconds_of_calls(shown.record.fields))


def medium_at(shown: Shown, number: int, given_paths: Sequence[Path]) -> Medium:
    """Return an image or a sound of a conversation. Raise `DataError` if it does not exist or cannot be shown."""
    found = conversation_at(shown).media
    if number >= len(found):
        raise Missing(f"The rollout has {len(found)} images and sounds, so number {number} does not exist.")
    return content_of(found[number].part, found[number].kind, (shown.planned or shown.record).fields, given_paths)


def rollout_json(
    shown: Shown, given_paths: Sequence[Path], *, first_item: int = 0, items_bytes: int = ITEMS_BYTES
) -> dict[str, object]:
    """Return the rollout as JSON (type `Rollout` in api.ts), with `previous` and `next` set to None."""
    run, place, row, _ = shown
    key, record = place.key, row.fields
    conversation = conversation_at(shown)
    items = _fitting(conversation.items[first_item:], items_bytes)
    note, graded = run.notes.of(key), _graded(shown)
    return {
        "run": run.id, "task": key.task, "repeat": key.repeat, "attempt": place.attempt,
        "attempts": sorted(_attempts_of(run, key, run.index.place(key))),
        "agent": row.agent, "outcome": place.outcome,
        "reward": row.reward if place.outcome is Outcome.SCORED else None,
        "why": _why(graded.get(WHY_KEY), shown, conversation),
        "is_masked": row.is_masked, "mask_reason": _mask_reason(row),
        "policy_version": shortened(record.get("policy_version")), "model": _text((row.response or {}).get("model")),
        "usage": _usage(row), "items": items, "omitted": max(0, len(conversation.items) - first_item - len(items)),
        "tools": _tools(row), "failure": _failure(shown, given_paths), "reward_components": _components(record),
        "graded": graded, "given": _given(shown), "judges": judgements_of(record),
        "timeline": timeline_of(record, conversation.turns),
        "note": None if note is None else note.model_dump(mode="json"),
        "rerun": rerun_of(run.record, run.files, run.index.planned(key), (shown.planned or shown.record).media_dir),
        "file": {"path": str(place.path), "line": place.line, "offset": place.offset, "bytes": place.bytes},
        "previous": None, "next": None,
    }  # fmt: skip


def _why(reason: object, shown: Shown, conversation: Conversation) -> str | None:
    """Return one sentence: the grader's reason or the failure, the tools that failed, and how the rollout ended."""
    row, items = shown.record, conversation.items
    failed = Counter(item["name"] for item in items if item["kind"] == "tool" and item["failed"])
    tools = ", ".join(f"{name} ({count}×)" if count > 1 else name for name, count in failed.most_common(MOST_FAILED))
    cut_off = object_at(row.response or {}, "incomplete_details").get("reason")
    parts = (
        row.failure_message if shown.place.outcome is Outcome.FAILED else reason,
        tools and f"failed tool calls: {tools}",
        f"the answer was cut off ({cut_off})" if cut_off else items and items[-1]["kind"] == "tool" and NO_ANSWER,
    )
    return "; ".join(cut(str(part), LONGEST_REASON) for part in parts if part) or None


def _fitting(items: Sequence[Mapping[str, object]], most_bytes: int) -> list[Mapping[str, object]]:
    """Return as many items as fit into `most_bytes` of JSON, but at least one."""
    found: list[Mapping[str, object]] = []
    left = most_bytes
    for item in items:
        left -= size_of(item) or 0
        if left < 0 and found:
            break
        found.append(item)
    return found


def _attempts_of(run: RunView, key: TaskKey, current: Place | None) -> dict[int, Place]:
    """Return the records of a rollout by attempt."""
    return {place.attempt: place for place in (*run.index.attempts(key), current) if place is not None}


def _mask_reason(row: Row) -> str | None:
    if not row.is_masked:
        return None
    return _text(row.fields.get("failure_reason") or object_at(row.fields, "instance_config").get("failure_reason"))


def _usage(row: Row) -> Mapping[str, object] | None:
    if row.usage is None:
        return None
    usage = usage_of(row.usage)
    return {
        "input_tokens": usage.tokens_in, "output_tokens": usage.tokens_out,
        "cached_tokens": usage.cached_tokens, "reasoning_tokens": usage.tokens_reasoning,
    }  # fmt: skip


def _tools(row: Row) -> list[Mapping[str, object]]:
    """Return the tools in the response, or else in the row. The environment may have added tools to the response."""
    given = (row.response or {}).get("tools") or (row.params or {}).get("tools")
    return [_tool(tool) for tool in objects_in(given)[:MOST_TOOLS]]


def _tool(tool: Mapping[str, object]) -> Mapping[str, object]:
    named = object_at(tool, "function") or tool
    name, description = _text(named.get("name") or tool.get("type")) or "", named.get("description")
    parameters = shortened(named.get("parameters"), 4 * LONGEST_DESCRIPTION)
    return {"name": name, "description": _text(description, LONGEST_DESCRIPTION), "parameters": parameters}


def _failure(shown: Shown, given_paths: Sequence[Path]) -> Mapping[str, object] | None:
    row = shown.record
    if shown.place.outcome is not Outcome.FAILED or row.failure_class is None:
        return None
    return {
        "class": cut(row.failure_class, 200), "message": cut(row.failure_message or ""),
        "server": _text(row.failure_server), "tier": _text(row.failure_tier),
        "retryable": row.may_retry(default=False), "log": log_of_failure(row, shown.run.files, given_paths),
    }  # fmt: skip


def _components(record: Mapping[str, object]) -> dict[str, float]:
    components = object_at(record, "reward_components")
    return {cut(name, 200): float(value) for name, value in components.items() if isinstance(value, int | float)}


def _given(shown: Shown) -> Mapping[str, object]:
    """Return the fields of the planned row, or an empty dict if that row is unknown.

    The record of an unresolved rollout is its planned row. Other records may have fields that come from grading.
    """
    if shown.place.outcome is Outcome.UNRESOLVED:
        return shortened_fields(_own_fields(shown.record.fields))
    return shortened_fields(_own_fields(shown.planned.fields if shown.planned else {}))


def _graded(shown: Shown) -> Mapping[str, object]:
    """Return the fields of a record that the planned row does not have, or has with another value."""
    if shown.place.outcome is Outcome.UNRESOLVED:
        return {}
    planned, fields = shown.planned.fields if shown.planned else {}, _own_fields(shown.record.fields)
    hidden = {*SHOWN_AS_JUDGEMENTS, *(FAILURE_OF_RELEASE_0_7 if shown.place.outcome is Outcome.FAILED else ())}
    added = {name: value for name, value in fields.items() if name not in planned or planned[name] != value}
    return shortened_fields({name: value for name, value in added.items() if name not in hidden})


def _own_fields(record: Mapping[str, object]) -> Mapping[str, object]:
    return {
        name: value
        for name, value in record.items()
        if name not in SHOWN_ELSEWHERE and not name.startswith(PRIVATE_PREFIX)
    }


def _text(value: object, longest: int = 1_000) -> str | None:
    return None if value is None else cut(str(value), longest)
