"""The record of a program that is graded: answers of the model, and results of the environment's tools.

Both passed through the gateway. Everything else in the program's history is only a claim of the program. Claims keep
their place, but they are marked, and none of them looks like an answer of the model or a result of the environment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from nemo_gym.errors import AgentFailed
from nemo_gym.harness.conversations import ModelCall
from nemo_gym.harness.keys import CALL, MESSAGE, OUTPUT, text_of, written
from nemo_gym.harness.tool_results import ToolResult, is_named
from nemo_gym.records.conversation import is_of_model
from nemo_gym.schemas.shapes import Item
from nemo_gym.schemas.tokens import without_tokens

OnClaims = Literal["keep", "mask", "fail"]


@dataclass
class Record:
    """The items of the graded conversation."""

    output: list[Item] = field(default_factory=list)
    claimed_answers: int = 0
    """The number of claimed answers and tool calls of the model, and claimed results of the environment's tools."""
    claimed_observations: int = 0
    """The number of all other claims: messages to the model, and results of the program's own tools."""


@dataclass(frozen=True)
class ClaimRules:
    """The settings for rollouts whose history has claims."""

    answers: OnClaims = "keep"
    observations: OnClaims = "keep"

    def mask_reason(self, record: Record) -> str | None:
        """Return the reason to mask the rollout, or None. Raise `AgentFailed` if the rollout has to fail."""
        found = [
            (self.answers, record.claimed_answers, "answers of the model or results of the environment's tools"),
            (self.observations, record.claimed_observations, "messages or results of its own tools"),
        ]
        reasons = {rule: f"the program claimed {count} {kind}" for rule, count, kind in found[::-1] if count}
        if "fail" in reasons:
            raise AgentFailed(f"{reasons['fail']}, which did not pass through the gateway")
        return reasons.get("mask")


def record_of(calls: Sequence[ModelCall], results: Iterable[ToolResult], tools: Collection[str]) -> Record:
    """Return the record of a conversation. `tools` are the names of the environment's tools.

    Raise `DataError` if a call cannot be read.
    """
    writer = _Writer(list(results), tools)
    for call in calls:
        if call.problem is not None:
            raise call.problem
        writer.add_history(call)
        writer.add_answer(call)
    writer.end()
    return writer.record


class _Open(NamedTuple):
    """A tool call of the model that waits for its result."""

    call: Item
    answer: int
    """The number of the model's answer that contains the call."""


class _Writer:
    def __init__(self, results: list[ToolResult], tools: Collection[str]) -> None:
        self.record = Record()
        self._results = results
        self._tools = {*tools, *(result.name for result in results)}
        self._open: list[_Open] = []

    def add_history(self, call: ModelCall) -> None:
        """Add the results of the model's tool calls, and then the other items that a call adds to the history."""
        shown = self._shown(call.added)
        own: set[int] = set()
        truncated: set[int] = set()
        for each in list(self._open):
            place = shown.get(id(each.call))
            output = None if place is None else call.added[place]["output"]
            result = self._take(each, output, call.answered)
            if result is not None:
                self._close(each, {"output": result.output})
                if place is not None:
                    (own if result.is_shown_by(output) else truncated).add(place)
            elif place is not None and each.call["name"] not in self._tools:
                self._close(each, {"output": output, "claimed_by_program": OUTPUT})
                self.record.claimed_observations += 1
                own.add(place)
        for place, item in enumerate(call.added):
            if place not in own:
                self._add_claim(item, is_observation=place in truncated)

    def add_answer(self, call: ModelCall) -> None:
        # Verifiers look for the environment's names of tools, but programs put the name of the MCP server before them.
        said = [self._with_own_name(item) if item["type"] == CALL else item for item in call.said]
        self.record.output += said
        self._open += [_Open(item, call.number) for item in said if item["type"] == CALL]

    def _with_own_name(self, call: Item) -> Item:
        return next((call | {"name": tool} for tool in self._tools if is_named(call["name"], tool)), call)

    def end(self) -> None:
        """Add the results of the last tool calls, which the model has not seen."""
        for each in list(self._open):
            if (result := self._take(each, None, None)) is not None:
                self._close(each, {"output": result.output})

    def _shown(self, added: Sequence[Item]) -> dict[int, int]:
        """Return the place of the output that the program sent for each open call, by the identity of the call."""
        places = [place for place, item in enumerate(added) if item["type"] == OUTPUT]
        shown: dict[int, int] = {}
        # Look at the latest calls first, because a model may use an id again.
        for each in reversed(self._open):
            place = next((place for place in places if added[place]["call_id"] == each.call["call_id"]), None)
            if place is not None:
                shown[id(each.call)] = place
                places.remove(place)
        # A program may have given the calls other ids.
        unknown = (each for each in self._open if id(each.call) not in shown)
        return shown | {id(each.call): place for each, place in zip(unknown, places, strict=False)}

    def _take(self, each: _Open, shown: object, answered: int | None) -> ToolResult | None:
        """Take the environment's result for a call: the one that was shown to the model, or else the first one."""
        found = [
            result
            for result in self._results
            if (answered is None or result.answered <= answered) and result.answers(each.call)
        ]
        if not found:
            return None
        result = min(found, key=lambda result: (not result.is_shown_by(shown), result.answered <= each.answer))
        self._results.remove(result)
        return result

    def _close(self, each: _Open, fields: Item) -> None:
        self._open.remove(each)
        self.record.output.append({"type": OUTPUT, "call_id": each.call["call_id"], **fields})

    def _add_claim(self, item: Item, *, is_observation: bool) -> None:
        kind = str(item["type"])
        if kind == MESSAGE and not is_of_model(item):
            self.record.output.append(without_tokens(item) | {"claimed_by_program": item["role"]})
            self.record.claimed_observations += 1
            return
        self.record.output.append(
            {"type": MESSAGE, "role": "user", "content": _as_text(item), "claimed_by_program": item.get("role", kind)}
        )
        if is_observation:
            self.record.claimed_observations += 1
        else:
            self.record.claimed_answers += 1


def _as_text(item: Item) -> str:
    """Return a claimed item as text, because as an item it would look like a part of the record."""
    kind = item["type"]
    if kind in (MESSAGE, OUTPUT):
        return text_of(item["content"] if kind == MESSAGE else item["output"])
    plain = {name: value for name, value in without_tokens(item).items() if value is not None}
    return written(plain)
