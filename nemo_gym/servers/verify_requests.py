"""Parser of verify requests that skips the tokens of the response, because few verifiers read them."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from nemo_gym.opaque import Cut, cut_tokens
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.rollout import BaseVerifyRequest
from nemo_gym.schemas.tokens import Unparsed

WITH_TOKENS = ("message", "function_call", "reasoning")
"""Types of output items whose token arrays may stay unparsed, because their classes parse them at the first access."""


def loads_without_tokens(text: bytes, *, of_group: bool = False) -> Any | None:
    """Parse a verify request, but keep its long token arrays as `Unparsed`. Return None if it lacks such arrays.

    With `of_group`, parse the verify requests of a group, which are in the list `bodies`.
    Arrays outside the output's items are parsed. Raise `ValueError` for invalid JSON.
    """
    cut = cut_tokens(text)
    if not cut.arrays:
        return None
    given = from_json(cut.text)
    bodies = given.get("bodies") if of_group and isinstance(given, dict) else [given]
    for body in bodies if isinstance(bodies, list) else ():
        response = body.get("response") if isinstance(body, dict) else None
        output = response.get("output") if isinstance(response, dict) else None
        for item in output if isinstance(output, list) else ():
            if isinstance(item, dict) and item.get("type") in WITH_TOKENS:
                _keep_unparsed(item, cut)
    cut.restore(given, from_json)
    return given


def _keep_unparsed(item: dict[str, object], cut: Cut) -> None:
    for key, value in item.items():
        if (array := cut.array_at(key, value)) is not None:
            item[key] = Unparsed(key, array)


def leaves_response_to_us(kind: object) -> bool:
    """Return whether a class of verify requests leaves the validation of its response to nemo_gym's `Response`.

    If so, an author's validators cannot receive unparsed tokens.
    """
    if not (isinstance(kind, type) and issubclass(kind, BaseVerifyRequest)):
        return False
    field, validators = kind.model_fields["response"], kind.__pydantic_decorators__
    fields = {name for each in validators.field_validators.values() for name in each.info.fields}
    has_own = validators.model_validators or not fields.isdisjoint({"response", "*"})
    return field.annotation is Response and not field.metadata and not has_own
