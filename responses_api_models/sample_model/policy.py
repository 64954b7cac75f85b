"""A random policy: valid calls of the request's tools, or answers from a list."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

from responses_api_models.sample_model.ask import Ask, FunctionTool, RequestError
from responses_api_models.sample_model.json_schema.references import SchemaError
from responses_api_models.sample_model.sampler import Sampler

SCHEMAS_KEPT = 512


@dataclass(frozen=True)
class Habits:
    """The settings of the random policy."""

    answers: tuple[str, ...]
    tool_call_probability: float
    max_calls_per_turn: int
    max_tool_turns: int


class Call(NamedTuple):
    """A tool call. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """One turn: either calls or a text."""

    id: str
    calls: tuple[Call, ...] = ()
    text: str = ""

    @property
    def words(self) -> int:
        """The number of whitespace-separated words in the text and the calls."""
        texts = [self.text, *(f"{call.name} {call.arguments}" for call in self.calls)]
        return sum(len(text.split()) for text in texts)


class Policy:
    """A source of replies. With the same request and random state, the reply is the same, including its ids."""

    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        # Each request repeats its tools, so samplers are cached by the text of their schema.
        self._sampler = lru_cache(maxsize=SCHEMAS_KEPT)(_sampler)

    def reply(self, ask: Ask, rng: Random) -> Reply:
        """Return the next turn. Raise `RequestError` if a tool's schema has no instance."""
        calls_at_most = self._habits.max_calls_per_turn
        if ask.most_calls is not None:
            calls_at_most = min(calls_at_most, ask.most_calls)
        if calls_at_most > 0 and self._wants_to_call(ask, rng):
            calls = tuple(self._call(rng.choice(ask.tools), rng) for _ in range(rng.randint(1, calls_at_most)))
            return Reply(_id(rng), calls=calls)
        return Reply(_id(rng), text=self._answer(ask, rng))

    def _wants_to_call(self, ask: Ask, rng: Random) -> bool:
        if ask.tool_choice == "none" or not ask.tools:
            return False
        if ask.tool_choice == "required":
            return True
        is_done = ask.conversation.tool_turns >= self._habits.max_tool_turns
        return not is_done and rng.random() < self._habits.tool_call_probability

    def _call(self, tool: FunctionTool, rng: Random) -> Call:
        try:
            arguments = self._sampler(_arguments_schema(tool)).sample(rng)
        except SchemaError as error:
            raise RequestError(
                f"no arguments can be generated for the tool {tool.name!r}: problem in its parameters at {error}"
            ) from error
        return Call(_id(rng), tool.name, json.dumps(arguments, ensure_ascii=False))

    def _answer(self, ask: Ask, rng: Random) -> str:
        answer = rng.choice(self._habits.answers)
        if ask.answer_format is None:
            return answer
        if ask.answer_format["type"] == "json_object":
            return json.dumps({"answer": answer}, ensure_ascii=False)
        try:
            value = self._sampler(json.dumps(ask.answer_format.get("schema", True))).sample(rng)
        except SchemaError as error:
            raise RequestError(
                f"no answer can be generated in the requested format: problem in its schema at {error}"
            ) from error
        return json.dumps(value, ensure_ascii=False)


def _sampler(schema_text: str) -> Sampler:
    return Sampler(json.loads(schema_text))


def _arguments_schema(tool: FunctionTool) -> str:
    """Return the tool's parameters as JSON text, with the type `object` even if the schema omits it."""
    parameters = {} if tool.parameters is None else tool.parameters
    if not isinstance(parameters, dict):
        raise SchemaError("#", f"must be an object, not {parameters!r}")
    if parameters.get("type", "object") != "object":
        raise SchemaError("#/type", f"must be 'object', not {parameters['type']!r}, because arguments are an object")
    return json.dumps({**parameters, "type": "object"})


def _id(rng: Random) -> str:
    return f"{rng.getrandbits(64):016x}"
