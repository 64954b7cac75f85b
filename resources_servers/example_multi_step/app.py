"""Look up a value for each synonym of a word, then hand in all values in order."""

from collections.abc import Sequence
from typing import Any

import orjson

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, NeMoGymResponse, SimpleResourcesServer, tool

SUBMIT = "extract_synonym_values"


class MultiStepVerifyRequest(BaseVerifyRequest):
    """The body of `/verify` with the row's ground truth: the synonyms' values, and the word's own value as a trap."""

    expected_synonym_values: list[int]
    minefield_label_value: int


def synonym_value(word: str) -> int:
    """Return the value of a word, the sum of its code points."""
    return sum(map(ord, word))


class MultiStepServer(SimpleResourcesServer):
    """A server with one tool to look up values and one to submit them."""

    KEY_METRICS = (
        "mean/reward",
        "mean/accuracy",
        "mean/set_overlap",
        "mean/original_term_minefield_hit",
        "mean/order_instruction_following_failure",
        "mean/input_tokens",
        "mean/output_tokens",
    )

    @tool
    async def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Look up the value of one synonym."""
        return {"synonym_value": synonym_value(synonym)}

    @tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Hand in the values of all synonyms, in the order in which the synonyms were given."""
        return {"success": True}

    async def verify(self, body: MultiStepVerifyRequest) -> BaseVerifyResponse:
        """Reward the last submission if it lists exactly the expected values in order."""
        expected = body.expected_synonym_values
        submitted = last_submission(body.response)
        values = submitted or []
        is_right = submitted == expected
        is_complete = submitted is not None and sorted(values) == sorted(expected)
        trap = body.minefield_label_value
        return BaseVerifyResponse.grade(
            body,
            reward=float(is_right),
            parsed_synonym_values=values,
            accuracy=is_right,
            set_overlap=overlap(values, expected),
            # A synonym may happen to have the word's own value; submitting it is then correct.
            original_term_minefield_hit=trap in values and trap not in expected,
            order_instruction_following_failure=is_complete and not is_right,
        )


def last_submission(response: NeMoGymResponse) -> list[int] | None:
    """Return the values submitted last, or None if there are none or they are not a list of integers."""
    submissions = [call.arguments for call in response.tool_calls if call.name == SUBMIT]
    return _values_in(submissions[-1]) if submissions else None


def overlap(values: Sequence[int], expected: Sequence[int]) -> float:
    """Return the share of expected values that is in `values`, from 0 to 1."""
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
    """Return whether JSON Schema accepts a value as an integer, such as 408.0. Inexact floats are rejected."""
    return type(value) is int or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53)


if __name__ == "__main__":
    MultiStepServer.run_webserver()
