"""The values of one record that the index keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

from nemo_gym.jsonl import JsonObject
from nemo_gym.opaque import Cut, cut_tokens
from nemo_gym.records.conversation import object_at, objects_in, texts_of, turns
from nemo_gym.records.usage import usage_of
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import (
    ATTEMPT_INDEX_KEY,
    FAILURE_CLASS_KEY,
    FAILURE_OF_RELEASE_0_7,
    PRIVATE_PREFIX,
    ROLLOUT_INDEX_KEY,
    SECONDS_KEY,
    TASK_INDEX_KEY,
    Row,
    TaskKey,
)
from nemo_gym.viewer.conversation import is_failed
from nemo_gym.viewer.index.fields import Fields, Scalar
from nemo_gym.viewer.index.lines import FileLine
from nemo_gym.viewer.timeline import Times, times_of

LONGEST_TEXT = 200
LONGEST_TITLE = 120
LONGEST_PARSED = 8 << 20
"""The maximum number of bytes of a parsed line, not counting token ids. Parsing longer ones takes too much memory."""
WITH_TOKENS = 16 << 10
REPEAT_BITS = 20
LARGEST_REWARD = 1e100
"""The limit beyond which a reward is reported as a problem, because sums of squares would overflow."""
MOST_TASKS = 1 << 43
UNLISTED = frozenset({
    "responses_create_params", "response", "reward", "agent_ref", "ng_model_call_capture", "ng_trajectory",
    "ng_agent_observations",
})  # fmt: skip
"""Fields of a record that are not offered as columns of the table."""
UNLISTED_FAILURE = UNLISTED | {*FAILURE_OF_RELEASE_0_7}
COMPONENTS = "reward_components."
LOG_PROBS = "generation_log_probs"
_NUMBER = rb"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"

NO_FIELDS: Fields = MappingProxyType({})
Tools = Mapping[str, tuple[int, int]]
"""For each called tool, the number of calls and how many of them failed."""


class NotARollout(ValueError):
    """A line that is not a record of a rollout. The message is for the user."""


class Entry(NamedTuple):
    """The part of a record that the index keeps."""

    key: TaskKey
    attempt: int
    outcome: Outcome
    agent: str | None = None
    reward: float | None = None
    failure: str | None = None
    tier: str | None = None
    server: str | None = None
    steps: int | None = None
    tools: Tools | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    times: Times = Times()
    is_masked: bool = False
    has_tokens: bool = False
    log_prob: float | None = None
    """The mean log-probability of the sampled tokens."""
    title: str = ""
    fields: Fields = NO_FIELDS
    model: str | None = None
    """The model name in the response."""
    problem: str | None = None
    """A message to the user about a defect of the record."""

    @property
    def tool_calls(self) -> int | None:
        return None if self.tools is None else sum(calls for calls, _ in self.tools.values())


def id_of(key: TaskKey) -> int:
    """Return the id of a rollout in the index. Ids increase with the task and, within a task, with the repeat."""
    return key.task << REPEAT_BITS | key.repeat


def key_of(number: int) -> TaskKey:
    """Return the key (task and repeat) that belongs to the id of a rollout in the index."""
    return TaskKey(number >> REPEAT_BITS, number & ((1 << REPEAT_BITS) - 1))


def entry_of(line: FileLine, outcome: Outcome, titled: Container[int] = ()) -> Entry:
    """Return the entry of a line. Raise `NotARollout` if the line is not a record of a rollout.

    `outcome` is the outcome of the records in this file. The titles of tasks in `titled` are left out, because all
    repeats of a task have the same title.
    """
    cut = cut_tokens(line.raw) if line.is_whole and len(line.raw) > WITH_TOKENS else Cut(line.raw, [])
    text = cut.text
    if not line.is_whole or len(text) > LONGEST_PARSED:
        return _scanned(line, outcome)
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotARollout(f"not valid JSON ({error.msg}); the line is left out.") from error
    if not isinstance(fields, dict):
        raise NotARollout(f"expected a JSON object, found {type(fields).__name__}; the line is left out.")
    return _of_row(Row(fields), cut, line, outcome, titled)


def _of_row(row: Row, cut: Cut, line: FileLine, outcome: Outcome, titled: Container[int]) -> Entry:
    fields, response, problem, reward = row.fields, row.response, None, None
    if FAILURE_CLASS_KEY in fields:
        outcome = Outcome.FAILED if outcome is Outcome.SCORED else outcome
    elif outcome is Outcome.SCORED:
        if response is None and "reward" not in fields:
            raise NotARollout("not a rollout, because it has neither a response nor a reward; the line is left out.")
        reward = _reward(row.reward)
        problem = "the reward is missing, too large or not a number." if reward is None else None
    is_failed = outcome is Outcome.FAILED
    key = _checked(line.number - 1 if row.task_index is None else row.task_index, row.repeat_index or 0)
    title = "" if key.task in titled else _title_of(fields)
    items = row.failure_conversation.get("items") if response is None else response.get("output")
    said, answer = _said_in(items, cut), response or {}
    usage = usage_of(answer.get("usage"))
    return Entry(
        key, _count(fields.get(ATTEMPT_INDEX_KEY)) or 0, outcome, _text(row.agent), reward,
        _text(row.failure_class) if is_failed else None, _text(row.failure_tier) if is_failed else None,
        _text(row.failure_server) if is_failed else None, said.steps, said.tools,
        _count(usage.tokens_in), _count(usage.tokens_out), times_of(fields, answer),
        row.is_masked, said.has_tokens, said.log_prob, title, _scalars(fields),
        _text(answer.get("model")), problem,
    )  # fmt: skip


def _checked(task: int, repeat: int) -> TaskKey:
    if not 0 <= task < MOST_TASKS or not 0 <= repeat < 1 << REPEAT_BITS:
        raise NotARollout(f"task {task}, repeat {repeat}: the numbers are out of range; the line is left out.")
    return TaskKey(task, repeat)


def _reward(value: float | None) -> float | None:
    return value if value is not None and abs(value) <= LARGEST_REWARD else None


def _text(value: object) -> str | None:
    return value[:LONGEST_TEXT] if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


class _Said(NamedTuple):
    """The part of a conversation that the index keeps."""

    steps: int | None = None
    tools: Tools | None = None
    has_tokens: bool = False
    log_prob: float | None = None


def _said_in(items: object, cut: Cut) -> _Said:
    """Return what the model said and called, from the items of its response."""
    if not isinstance(items, list):
        return _Said()
    known = objects_in(items)
    names: dict[object, str] = {}
    tools: dict[str, tuple[int, int]] = {}
    has_tokens, log_probs = False, list[float]()
    for item in known:
        if "generation_token_ids" in item:
            has_tokens = True
            log_probs += _numbers_in(item.get(LOG_PROBS), cut)
        kind = item.get("type")
        if not isinstance(kind, str) or not kind.endswith(("_call", "_output")):
            continue
        call_id = str(item.get("call_id"))
        if kind.endswith("_call"):
            names[call_id] = name = _text(item.get("name")) or kind
            calls, failed = tools.get(name, (0, 0))
            tools[name] = (calls + 1, failed + is_failed(item))
        elif call_id in names and is_failed(item):
            calls, failed = tools[name := names.pop(call_id)]
            tools[name] = (calls, min(calls, failed + 1))
    log_prob = sum(log_probs) / len(log_probs) if log_probs else None
    return _Said(sum(1 for _ in turns(known)), tools, has_tokens, log_prob)


def _numbers_in(value: object, cut: Cut) -> Iterable[float]:
    """Return the numbers of an array that may have been cut out of the record."""
    if (found := cut.array_at(LOG_PROBS, value)) is not None:
        numbers: list[float] = orjson.loads(found)
        return numbers
    return [each for each in value if isinstance(each, int | float)] if isinstance(value, list) else []


def _title_of(fields: Mapping[str, object]) -> str:
    """Return the start of the last user message of a prompt."""
    given = object_at(fields, "responses_create_params").get("input")
    if isinstance(given, str):
        return _one_line(given)
    asked = (item for item in reversed(objects_in(given)) if item.get("role") == "user")
    texts = (text for item in asked for text in texts_of(item.get("content")))
    return next((_one_line(text) for text in texts if not text.isspace()), "")


def _one_line(text: str) -> str:
    return " ".join(text[: 2 * LONGEST_TITLE].split())[:LONGEST_TITLE]


def _scalars(fields: JsonObject) -> Fields:
    """Return the scalar fields of a row and of its nested objects, if they can be columns of the table."""
    unlisted = UNLISTED_FAILURE if FAILURE_CLASS_KEY in fields else UNLISTED
    found: dict[str, Scalar] = {}
    for name, value in fields.items():
        if value is None or name in unlisted or name.startswith(PRIVATE_PREFIX) or len(name) > LONGEST_TEXT:
            continue
        kind = type(value)
        if kind is str:
            if len(value) <= LONGEST_TEXT:
                found[name] = value
        elif kind is dict:
            found |= {
                f"{name}.{inner}": each
                for inner, each in value.items()
                if _is_scalar(each) and len(inner) <= LONGEST_TEXT
            }
        elif kind is not list:
            found[name] = value
    return found


def _is_scalar(value: object) -> bool:
    return len(value) <= LONGEST_TEXT if isinstance(value, str) else isinstance(value, int | float)


def _scanned(line: FileLine, outcome: Outcome) -> Entry:
    """Return the entry of a line that is too long to be parsed. Use only fields near the line's start and end."""
    task, repeat = _found(line, TASK_INDEX_KEY), _found(line, ROLLOUT_INDEX_KEY)
    key = _checked(line.number - 1 if task is None else int(task), int(repeat or 0))
    reward = _reward(_found(line, "reward")) if outcome is Outcome.SCORED else None
    seconds, attempt = _found(line, SECONDS_KEY), _found(line, ATTEMPT_INDEX_KEY)
    megabytes = line.bytes / 1e6
    return Entry(
        key, _count(int(attempt or 0)) or 0, outcome, _found_text(line, rb'"name"', "agent_ref"), reward,
        _found_text(line, b"", FAILURE_CLASS_KEY), times=Times(seconds=seconds),
        problem=f"the line has {megabytes:.0f} MB; only its numbers, agent and reward are indexed.",
    )  # fmt: skip


def _found(line: FileLine, name: str) -> float | None:
    # Skip a match after a backslash. The backslash escapes the quote, so the match is inside a string and not a key.
    found = list(re.finditer(rb'(?<!\\)"%b"\s*:\s*%b' % (name.encode(), _NUMBER), _ends_of(line)))
    number = float(found[-1][1]) if found else math.nan
    return number if math.isfinite(number) else None


def _found_text(line: FileLine, inner: bytes, name: str) -> str | None:
    between = rb"\{[^{}]*?%b\s*:\s*" % inner if inner else b""
    found = re.search(rb'(?<!\\)"%b"\s*:\s*%b"([^"\\]{1,200})"' % (name.encode(), between), _ends_of(line))
    return found[1].decode("utf-8", "replace") if found else None


def _ends_of(line: FileLine) -> bytes:
    """Return the start and the end of a line, joined. Fields in the middle of a long line are not found."""
    size = 64 << 10
    return line.raw if len(line.raw) <= 2 * size else line.raw[:size] + line.raw[-size:]
