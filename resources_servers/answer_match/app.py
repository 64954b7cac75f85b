"""Grade a short answer by comparing it with the expected one, without a judge."""

from reprlib import repr as quoted
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import (
    AnswerText,
    PatternFailed,
    PatternSearch,
    final_answer,
    number_in,
    same_text,
    unwrapped,
)
from resources_servers.answer_match.matching import chosen, contains, equal_numbers

Grader = Literal["exact", "number", "choice", "regex", "contains"]

ANSWER_KEY = "extracted_answer"
OPTION_KEY = "option"


class AnswerMatchConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grader: Grader | None = None
    """The grader for all rows. It overrides the rows' own `grader`."""
    case_sensitive: bool = False


class AnswerMatchVerifyRequest(BaseVerifyRequest):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")

    expected_answer: AnswerText = Field(pattern=r"\S")
    grader: Grader = "exact"
    options: list[AnswerText] | None = None
    """The answers to choose from, for the grader `choice`."""


class AnswerMatchServer(SimpleResourcesServer):
    """A verifier that compares the final answer of the last message with the expected one."""

    config: AnswerMatchConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
        "majority@{k}/accuracy",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
    )

    _pattern_search: PatternSearch = PrivateAttr(default_factory=PatternSearch)

    async def aclose(self) -> None:
        await super().aclose()
        self._pattern_search.close()

    async def verify(self, body: AnswerMatchVerifyRequest) -> BaseVerifyResponse:
        grader = self.config.grader or body.grader
        self._check(body, grader)
        text, keeps_case = body.response.answer_text, self.config.case_sensitive
        answer = text if grader == "contains" else final_answer(text)
        if grader == "choice" and answer:
            answer = chosen(body.options or [], answer, keeps_case=keeps_case)
        if grader == "number" and answer and number_in(unwrapped(answer)) is None:
            answer = None
        is_correct = bool(answer) and await self._is_correct(grader, body, answer or "")
        # For `contains`, report no answer, because majority voting needs short answers that rollouts can share.
        shown = None if grader == "contains" else answer
        how = f"{'matches' if is_correct else 'does not match'} the expected {quoted(body.expected_answer)} ({grader})"
        subject = "the text" if grader == "contains" else f"the answer {quoted(answer)}"
        why = f"{subject} {how}" if answer else f"no answer was found in the text ({grader})"
        return BaseVerifyResponse.grade(body, reward=float(is_correct), extracted_answer=shown, why=why)

    async def _is_correct(self, grader: Grader, body: AnswerMatchVerifyRequest, answer: str) -> bool:
        expected, keeps_case = body.expected_answer, self.config.case_sensitive
        if grader == "number":
            return equal_numbers(expected, answer)
        if grader == "contains":
            return contains(expected, answer, keeps_case=keeps_case, asked=_messages(body))
        if grader == "regex":
            return await self._matches(expected, answer)
        return same_text(expected, answer, keeps_case=keeps_case)

    async def _matches(self, pattern: str, answer: str) -> bool:
        try:
            return await self._pattern_search.matches_whole(pattern, answer, keeps_case=self.config.case_sensitive)
        except PatternFailed as error:
            raise InvalidTask(f"{self.config.name}: expected_answer: {error}. Fix the row.") from error

    def _check(self, body: AnswerMatchVerifyRequest, grader: Grader) -> None:
        """Raise `InvalidTask` if no answer could be correct."""
        problem = None
        if grader == "number" and number_in(unwrapped(body.expected_answer)) is None:
            problem = f"expected_answer: '{body.expected_answer}' is not a number"
        if grader == "choice":
            options = body.options or []
            if chosen(options, body.expected_answer, keeps_case=self.config.case_sensitive) is None:
                listed = ", ".join(options) or "missing"
                problem = f"expected_answer: '{body.expected_answer}' is not exactly one of the options ({listed})"
        if problem:
            raise InvalidTask(f"{self.config.name}: {problem}. Fix the row.", server=self.config.name)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return accuracies overall, per `subset`, and per expected option."""
        by_option = [
            [
                {**row, OPTION_KEY: f"option/{row['expected_answer']}" if row.get("options") else None}
                for row in rollouts
            ]
            for rollouts in tasks
        ]
        return {
            **compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY).metrics,
            **compute_subset_metrics(tasks, "subset", answer_key=ANSWER_KEY),
            **compute_subset_metrics(by_option, OPTION_KEY, answer_key=ANSWER_KEY),
        }


def _messages(body: BaseVerifyRequest) -> list[str]:
    """Return the texts of the request's messages."""
    contents = [getattr(item, "content", "") for item in body.responses_create_params.input_items]
    parts = [part for each in contents for part in ([each] if isinstance(each, str) else each)]
    return [part if isinstance(part, str) else getattr(part, "text", "") for part in parts]


if __name__ == "__main__":
    AnswerMatchServer.run_webserver()
