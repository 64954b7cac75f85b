"""The three components of the reward: the right call, valid arguments, and the response's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import BaseModel

from nemo_gym import InvalidTask, NeMoGymResponse
from nemo_gym.jsonl import check_unicode

DEEPEST_ARGUMENTS = 32
"""Maximum nesting depth of readable arguments. A reply with several hundred levels could not be serialized."""


class ExpectedCall(BaseModel):
    """The call that a row asks for."""

    name: str
    arguments: dict[str, Any] = {}


class PredictedCall(BaseModel):
    """A call by the model. Arguments remain text if they are not a JSON object or nest too deeply."""

    name: str
    arguments: dict[str, Any] | str

    @property
    def is_readable(self) -> bool:
        """Whether the arguments are a JSON object that is not nested too deeply."""
        return isinstance(self.arguments, dict)


class Rewards(NamedTuple):
    """The reward components that a response earned, and the calls in the response."""

    components: dict[str, float]
    calls: list[PredictedCall]


def check_row(expected: ExpectedCall, schemas: Mapping[str, dict[str, Any]]) -> None:
    """Raise `InvalidTask` if a tool's parameters are not a JSON Schema or the expected call's tool does not exist."""
    for name, schema in schemas.items():
        _validator(name, json.dumps(schema, sort_keys=True))
    if expected.name not in schemas:
        raise InvalidTask(f"expected_call: '{expected.name}' is not a tool. The tools are {', '.join(schemas)}.")


def rewards_of(response: NeMoGymResponse, expected: ExpectedCall, schemas: Mapping[str, dict[str, Any]]) -> Rewards:
    """Return the components of a response's reward, each 0 or 1. `schemas` are the tools' schemas, by name.

    `correctness`: the last call is the expected one. `schema_valid`: there are calls, and all arguments match their
    tool's schema. `format`: there is exactly one call, its arguments are a JSON object, and text follows.
    """
    calls = [_read(call.name, call.arguments) for call in response.tool_calls]
    ends_with_text = bool(response.output) and response.output[-1].type == "message" and bool(response.answer_text)
    found = {
        "correctness": bool(calls) and _is_expected(calls[-1], expected, schemas.get(expected.name, {})),
        "schema_valid": bool(calls) and all(_keeps_schema(call, schemas) for call in calls),
        "format": len(calls) == 1 and calls[0].is_readable and ends_with_text,
    }
    return Rewards({name: float(earned) for name, earned in found.items()}, calls)


def _read(name: str, arguments: str) -> PredictedCall:
    try:
        parsed = json.loads(arguments or "{}", parse_constant=_refuse, parse_float=_finite)
        check_unicode(parsed)
    except (ValueError, RecursionError):
        parsed = arguments
    is_readable = isinstance(parsed, dict) and _is_within(parsed, DEEPEST_ARGUMENTS)
    return PredictedCall(name=name, arguments=parsed if is_readable else arguments)


def _is_within(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_within(each, depth - 1) for each in inner)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return _refuse(text) if number in (float("inf"), float("-inf")) else number


def _is_expected(call: PredictedCall, expected: ExpectedCall, schema: Mapping[str, Any]) -> bool:
    if call.name != expected.name or not isinstance(call.arguments, dict):
        return False
    properties = schema.get("properties") or {}
    defaults = {name: each["default"] for name, each in properties.items() if _has_default(each)}
    return _are_equal({**defaults, **call.arguments}, {**defaults, **expected.arguments})


def _has_default(schema: Any) -> bool:
    # Check the type, because `true` and `false` are valid JSON Schemas, too.
    return isinstance(schema, dict) and "default" in schema


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, but `true` is not a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _keeps_schema(call: PredictedCall, schemas: Mapping[str, dict[str, Any]]) -> bool:
    if call.name not in schemas or not isinstance(call.arguments, dict):
        return False
    schema = schemas[call.name]
    return bool(_validator(call.name, json.dumps(schema, sort_keys=True)).is_valid(call.arguments))


@lru_cache(maxsize=256)
def _validator(name: str, schema: str) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(json.loads(schema))
    except (ValueError, jsonschema_rs.ValidationError) as error:
        problem = str(error).splitlines()[0]
        raise InvalidTask(f"the parameters of the row's tool '{name}' are not a JSON Schema: {problem}") from error
