"""Grade answers to tasks whose rules go against habit, and count the habitual answers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    ToolError,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    tool,
)
from nemo_gym.grading import AnswerText, final_answer
from resources_servers.counterintuitive.grading import Form, matches

ANSWER_KEY = "extracted_answer"


class CounterintuitiveConfig(BaseResourcesServerConfig):
    """The server's settings. Stored rollouts can be graded again, because grading needs only the reply."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class SeedRequest(BaseSeedSessionRequest):
    """The part of a row that a session needs."""

    documents: dict[str, str] | None = None
    """The texts of the documents that the model can read, by document name."""


class VerifyRequest(BaseVerifyRequest):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")

    expected_answer: AnswerText = Field(pattern=r"\S")
    """The answer that follows the rules of the task."""
    habitual_answer: AnswerText = Field(pattern=r"\S")
    """The answer that ignores the unusual rule. In a control row (usual rules), it equals `expected_answer`."""
    form: Form = "text"


class Shelf(SessionState):
    """The documents of this rollout."""

    documents: dict[str, str] = Field(default_factory=dict)


class CounterintuitiveServer(SimpleResourcesServer):
    """A verifier that compares the final answer with the expected one and the one that ignores the unusual rule."""

    config: CounterintuitiveConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/trap",
        "pass@1[avg-of-{k}]/no_answer",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
        "{subset}/pass@1[avg-of-{k}]/trap",
    )

    async def seed_session(self, body: SeedRequest, shelf: Shelf) -> None:
        shelf.documents = body.documents or {}

    @tool
    async def read_document(self, name: str, shelf: Shelf) -> str:
        """Return the text of a document."""
        if name not in shelf.documents:
            raise ToolError(
                f"document '{name}' does not exist. The documents are: {', '.join(shelf.documents) or 'none'}"
            )
        return shelf.documents[name]

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        """Reward the expected answer. In `trap`, record whether the habitual answer was given instead."""
        form, expected, habitual = body.form, body.expected_answer, body.habitual_answer
        for answer in (expected, habitual):
            if not matches(form, answer, answer):
                raise InvalidTask(f"{self.config.name}: '{answer}' does not have the form '{form}'. Fix the row.")
        given, question = final_answer(body.response.last_text), _question(body)
        is_control = matches(form, expected, habitual)
        return BaseVerifyResponse.grade(
            body,
            reward=float(given is not None and matches(form, expected, given, question)),
            extracted_answer=given,
            trap=None if is_control else given is not None and matches(form, habitual, given, question),
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the accuracy and the share of habitual answers (`trap`), overall and for each subset."""
        return {
            **compute_pass_majority_metrics(tasks, _scores, ANSWER_KEY).metrics,
            **compute_subset_metrics(tasks, "subset", _scores, ANSWER_KEY),
        }


def _question(body: VerifyRequest) -> str:
    """Return the last user message, or an empty string if it is not plain text."""
    items = body.responses_create_params.input_items
    asked = [getattr(item, "content", None) for item in items if getattr(item, "role", None) == "user"]
    return asked[-1] if asked and isinstance(asked[-1], str) else ""


def _scores(row: Mapping[str, Any]) -> dict[str, float | None]:
    return {"accuracy": row.get("reward"), "trap": row.get("trap")}


if __name__ == "__main__":
    CounterintuitiveServer.run_webserver()
