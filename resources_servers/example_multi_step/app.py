"""Look up a value for each synonym of a word, then hand in all values in order."""

from typing import Any

import orjson
from pydantic import ConfigDict

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer, tool

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
    """The row's ground truth: the synonyms with their values, and the word itself, which is a trap."""

    model_config = ConfigDict(extra="allow")

    id: int
    expected_synonyms: list[str]
    expected_synonym_values: list[int]
    minefield_label: str
    minefield_label_value: int


class MultiStepVerifyResponse(MultiStepVerifyRequest, BaseVerifyResponse):
    """The reward, and what was right and wrong about the values handed in."""

    parsed_synonym_values: list[int]
    accuracy: bool
    set_overlap: float
    original_term_minefield_hit: bool
    order_instruction_following_failure: bool


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

    async def verify(self, body: MultiStepVerifyRequest) -> MultiStepVerifyResponse:
        """Reward the last hand-in if it lists exactly the expected values, in their order."""
        handed_in = last_hand_in([(call.name, call.arguments) for call in body.response.tool_calls])
        expected = body.expected_synonym_values
        is_right = handed_in == expected
        return MultiStepVerifyResponse(
            **body.model_dump(),
            reward=float(is_right),
            parsed_synonym_values=handed_in,
            accuracy=is_right,
            set_overlap=len(set(handed_in) & set(expected)) / len(set(expected)) if expected else float(not handed_in),
            original_term_minefield_hit=(
                body.minefield_label not in body.expected_synonyms and body.minefield_label_value in handed_in
            ),
            order_instruction_following_failure=not is_right and sorted(handed_in) == sorted(expected),
        )

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """How well the values were handed in; the means of the rows' own numbers say nothing."""
        return {name: agent_metrics[name] for name in KEY_METRICS if name in agent_metrics}


def last_hand_in(calls: list[tuple[str, str]]) -> list[int]:
    """The values of the last hand-in; none where there is none, or where it is malformed."""
    for name, arguments in reversed(calls):
        if name == HAND_IN:
            return _values_in(arguments)
    return []


def _values_in(arguments: str) -> list[int]:
    try:
        parsed: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return []
    values = parsed.get("synonym_values") if isinstance(parsed, dict) else None
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        return []
    return values


if __name__ == "__main__":
    MultiStepServer.run_webserver()
