"""Grade the transcription of spoken or coded digits in a recording by its word error rate."""

from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from resources_servers.audio_digits.grading import digits_in, word_error_rate

ANSWER_KEY = "extracted_answer"
SUBSET_KEY = "subset"


class AudioDigitsConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class AudioDigitsVerifyRequest(BaseVerifyRequest):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str = Field(pattern=r"^[0-9]+$")
    """The digits in the recording, as text, because they may begin with 0."""


class AudioDigitsServer(SimpleResourcesServer):
    """A verifier that compares the digits of the final answer with those in the recording."""

    config: AudioDigitsConfig
    KEY_METRICS = (
        "mean/reward",
        "mean/wer",
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
        "majority@{k}/accuracy",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
        "{subset}/mean/wer",
    )

    async def verify(self, body: AudioDigitsVerifyRequest) -> BaseVerifyResponse:
        heard = digits_in(body.response.last_text)
        wer = word_error_rate(body.expected_answer, heard or "")
        return BaseVerifyResponse.grade(body, reward=max(0.0, 1.0 - wer), extracted_answer=heard, wer=wer)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the share of answers without an error, overall and per kind, and each kind's word error rate."""
        return {
            **compute_pass_majority_metrics(tasks, _accuracy, ANSWER_KEY).metrics,
            **compute_subset_metrics(tasks, SUBSET_KEY, _accuracy, ANSWER_KEY),
            **_error_rates(tasks),
        }


def _accuracy(row: dict[str, Any]) -> dict[str, float | None]:
    wer = row.get("wer")
    return {"accuracy": None if wer is None else float(wer == 0)}


def _error_rates(tasks: list[list[dict[str, Any]]]) -> dict[str, float]:
    by_kind: dict[str, list[float]] = {}
    for row in (row for rollouts in tasks for row in rollouts):
        if row.get(SUBSET_KEY) is not None and row.get("wer") is not None:
            by_kind.setdefault(row[SUBSET_KEY], []).append(row["wer"])
    return {f"{kind}/mean/wer": sum(rates) / len(rates) for kind, rates in by_kind.items()}


if __name__ == "__main__":
    AudioDigitsServer.run_webserver()
