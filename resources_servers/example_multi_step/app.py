"""Look up a value for each synonym of a word, then hand in all values in order."""

from collections.abc import Sequence
from typing import Any

import orjson

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, NeMoGymResponse, SimpleResourcesServer, tool

HAND_IN = "extract_synonym_values"
KEY_METRICS = (
    "mean/reward",
    "mean/accuracy",
    "mean/set_overlap",
    "mean/original_term_minefield_hit",
    "mean/order_instruction_following_failure",
    "mean/input_tokens",
    "mean/output_tokens",
)


class MultiStepVerifyRequest(BaseVerifyRequest):
    """The row's ground truth: the synonyms' values, and that of the word itself, which is a trap."""

    expected_synonym_values: list[int]
    minefield_label_value: int


def synonym_value(word: str) -> int:
    """The value of a word: the sum of its code points."""
    return sum(map(ord, word))


class MultiStepServer(SimpleResourcesServer):
    """Two tools: one to look values up, one to hand them in."""

    @tool
    async def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Look up the value of one synonym."""
        return {"synonym_value": synonym_value(synonym)}

    @tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Hand in the values of all synonyms, in the order in which the synonyms were given."""
        return {"success": True}

    async def verify(self, body: MultiStepVerifyRequest) -> BaseVerifyResponse:
        """Reward the last hand-in if it lists exactly the expected values, in their order."""
        expected = body.expected_synonym_values
        handed_in = last_hand_in(body.response)
        values = handed_in or []
        is_right = handed_in == expected
        is_complete = handed_in is not None and sorted(values) == sorted(expected)
        trap = body.minefield_label_value
        return BaseVerifyResponse.grade(
            body,
            reward=float(is_right),
            parsed_synonym_values=values,
            accuracy=is_right,
            set_overlap=overlap(values, expected),
            # Where a synonym happens to have the word's own value, handing it in is no mistake.
            original_term_minefield_hit=trap in values and trap not in expected,
            order_instruction_following_failure=is_complete and not is_right,
        )

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """How well the values were handed in; the means of the rows' own numbers say nothing."""
        return {name: agent_metrics[name] for name in KEY_METRICS if name in agent_metrics}


def last_hand_in(response: NeMoGymResponse) -> list[int] | None:
    """The values of the last hand-in; None where nothing was handed in, or what was is no list of integers."""
    hand_ins = [call.arguments for call in response.tool_calls if call.name == HAND_IN]
    return _values_in(hand_ins[-1]) if hand_ins else None


def overlap(values: Sequence[int], expected: Sequence[int]) -> float:
    """The part of the expected values that is among `values`, 0 to 1."""
    return len(set(values) & set(expected)) / len(set(expected)) if expected else float(not values)


def _values_in(arguments: str) -> list[int] | None:
    try:
        parsed: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    values = parsed.get("synonym_values") if isinstance(parsed, dict) else None
    if not isinstance(values, list) or not all(_is_integer(value) for value in values):
        return None
    return [int(value) for value in values]


def _is_integer(value: Any) -> bool:
    """As JSON Schema sees it: 408.0 is an integer. Floats beyond their exact range stand for no one number."""
    return type(value) is int or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53)


if __name__ == "__main__":
    MultiStepServer.run_webserver()
