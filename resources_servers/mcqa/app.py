"""Grade the answer to a multiple-choice question by comparing letters."""

import asyncio
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)
from nemo_gym.grading import AnswerText, PatternFailed, PatternSearch
from resources_servers.mcqa.grading import DEFAULT_MODE, GradingMode, Options, choice_in, letter_of_label

ANSWER_KEY = "extracted_answer"
SUBSET_KEY = "subset"


class McqaConfig(BaseResourcesServerConfig):
    """The server's configuration. If `grading_mode` is set, it overrides the rows' modes."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: GradingMode | None = None


class TemplateMetadata(BaseModel):
    """Metadata of the prompt's template. `output_regex` finds the answer: one regex, or several to try in order."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | list[str] | None = None

    @property
    def patterns(self) -> list[str]:
        """The regexes, in the order in which they are tried."""
        given = [self.output_regex] if isinstance(self.output_regex, str) else self.output_regex or []
        return [pattern for pattern in given if pattern]


class McqaRunRequest(BaseRunRequest):
    """A row with the options of a question and the correct letter. The question is in the input."""

    model_config = ConfigDict(extra="allow")

    options: list[dict[str, str | None]] | None = None
    """One `{letter: text}` per option. A row without options allows every letter."""
    expected_answer: AnswerText
    grading_mode: GradingMode | None = None
    template_metadata: TemplateMetadata | None = None

    @property
    def patterns(self) -> list[str]:
        return self.template_metadata.patterns if self.template_metadata else []


class McqaVerifyRequest(McqaRunRequest, BaseVerifyRequest):
    """A `verify()` request with the row and the agent's response."""


class McqaVerifyResponse(BaseVerifyResponse):
    """A `verify()` response with the row, the reward and the two compared letters."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str
    extracted_answer: str | None


class McqaServer(SimpleResourcesServer):
    """A verifier that compares the letter chosen in the last message with the expected one."""

    config: McqaConfig
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

    async def verify(self, body: McqaVerifyRequest) -> McqaVerifyResponse:
        options, patterns = self._options(body), body.patterns
        expected = letter_of_label(body.expected_answer)
        if not options.can_be_chosen(expected, by_pattern=bool(patterns)):
            reason = f"one of the options {', '.join(options.texts)}" if options.texts else "a letter"
            raise InvalidTask(
                f"{self.config.name}: expected_answer: '{body.expected_answer}' is not {reason}. Fix the row."
            )
        extracted = await self._choice(body, options, patterns)
        # Iterate in field order, because a set's order differs between processes and would change the output.
        row = {name: value for name, value in body if name in body.model_fields_set}
        graded = {"reward": float(extracted == expected), "expected_answer": expected, "extracted_answer": extracted}
        chosen = "the answer does not choose an option" if extracted is None else f"the answer chooses {extracted}"
        return McqaVerifyResponse.model_construct(**{**row, **graded, "why": f"{chosen}, and {expected} is expected"})

    def _options(self, body: McqaVerifyRequest) -> Options:
        try:
            return Options.of_row(body.options or [])
        except ValueError as error:
            raise InvalidTask(f"{self.config.name}: options: {error}. Fix the row.") from error

    async def _choice(self, body: McqaVerifyRequest, options: Options, patterns: list[str]) -> str | None:
        text, mode = body.response.answer_text, self.config.grading_mode or body.grading_mode or DEFAULT_MODE
        if not patterns:
            return choice_in(text, options, mode)
        try:
            # Try the later patterns on an empty text, to report an invalid pattern even if the first one matches.
            for pattern in patterns[1:]:
                await self._pattern_search.find_last_match(pattern, "")
            return await asyncio.to_thread(choice_in, text, options, mode, patterns, self._pattern_search.last_match)
        except PatternFailed as error:
            raise InvalidTask(f"{self.config.name}: template_metadata.output_regex: {error}. Fix the row.") from error

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        overall = compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY)
        with_subset = [[{**row, SUBSET_KEY: _subset(row)} for row in rollouts] for rollouts in tasks]
        return {**overall.metrics, **compute_subset_metrics(with_subset, SUBSET_KEY, answer_key=ANSWER_KEY)}


def _subset(row: dict[str, Any]) -> str | None:
    """Return a row's `subset`, or else its metadata's `subset` or `dataset`."""
    metadata = row.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    return row.get("subset") or metadata.get("subset") or metadata.get("dataset")


if __name__ == "__main__":
    McqaServer.run_webserver()
