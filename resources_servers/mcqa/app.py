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
    highest_k_metrics,
)
from nemo_gym.grading import PatternFailed, PatternSearch
from resources_servers.mcqa.grading import DEFAULT_MODE, GradingMode, Options, choice_in, letter_of_label

ANSWER_KEY = "extracted_answer"
SUBSET_KEY = "subset"


class McqaConfig(BaseResourcesServerConfig):
    """`grading_mode`, where it is set, takes the place of the one that a row names."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: GradingMode | None = None


class TemplateMetadata(BaseModel):
    """What is known of the prompt: `output_regex` finds the answer that it asked for, the first of a list first."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | list[str] | None = None

    @property
    def patterns(self) -> list[str]:
        """The patterns in the order in which they are tried."""
        given = [self.output_regex] if isinstance(self.output_regex, str) else self.output_regex or []
        return [pattern for pattern in given if pattern]


class McqaRunRequest(BaseRunRequest):
    """A row: the question is in the input, the options and the right letter stand beside it."""

    model_config = ConfigDict(extra="allow")

    options: list[dict[str, str | None]] | None = None
    """One `{letter: text}` per option; a row without options allows every letter."""
    expected_answer: str
    grading_mode: GradingMode | None = None
    template_metadata: TemplateMetadata | None = None

    @property
    def patterns(self) -> list[str]:
        """The patterns that the row brings."""
        return self.template_metadata.patterns if self.template_metadata else []


class McqaVerifyRequest(McqaRunRequest, BaseVerifyRequest):
    """The row, and what the agent answered."""


class McqaVerifyResponse(BaseVerifyResponse):
    """The row as it came, the reward, and the two letters that were compared."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str
    extracted_answer: str | None


class McqaServer(SimpleResourcesServer):
    """Reads the letter that the last message chooses, and compares it with the expected one."""

    config: McqaConfig

    _pattern_search: PatternSearch = PrivateAttr(default_factory=PatternSearch)

    async def aclose(self) -> None:
        await super().aclose()
        self._pattern_search.close()

    async def verify(self, body: McqaVerifyRequest) -> McqaVerifyResponse:
        options, patterns = Options.of_row(body.options or []), body.patterns
        expected = letter_of_label(body.expected_answer)
        if not options.can_be_chosen(expected, by_pattern=bool(patterns)):
            known = f"the options are {', '.join(options.texts)}" if options.texts else "it is no letter"
            told = f"no answer can be '{body.expected_answer}', {known}. Mend the row."
            raise InvalidTask(f"{self.config.name}: expected_answer: {told}")
        extracted = await self._choice(body, options, patterns)
        # In the fields' order: a set's differs between processes, and so would the lines of two equal runs.
        row = {name: value for name, value in body if name in body.model_fields_set}
        graded = {"reward": float(extracted == expected), "expected_answer": expected, "extracted_answer": extracted}
        return McqaVerifyResponse.model_construct(**{**row, **graded})

    async def _choice(self, body: McqaVerifyRequest, options: Options, patterns: list[str]) -> str | None:
        text, mode = body.response.last_text, self.config.grading_mode or body.grading_mode or DEFAULT_MODE
        if not patterns:
            return choice_in(text, options, mode)
        try:
            # The first may find the answer, and the others are the row's as well.
            for pattern in patterns[1:]:
                await self._pattern_search.find_last_match(pattern, "")
            return await asyncio.to_thread(choice_in, text, options, mode, patterns, self._pattern_search.last_match)
        except PatternFailed as error:
            raise InvalidTask(f"{self.config.name}: template_metadata.output_regex: {error}. Mend the row.") from error

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        overall = compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY)
        with_subset = [[{**row, SUBSET_KEY: _subset(row)} for row in rollouts] for rollouts in tasks]
        return {**overall.metrics, **compute_subset_metrics(with_subset, SUBSET_KEY, answer_key=ANSWER_KEY)}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        tokens = ("mean/input_tokens", "mean/output_tokens")
        return {
            **{key: agent_metrics[key] for key in tokens if key in agent_metrics},
            **highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]"),
            **highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer"]),
            **highest_k_metrics(agent_metrics, "majority@{k}", exclude_names=["no_answer"]),
        }


def _subset(row: dict[str, Any]) -> str | None:
    """The part of a collection that a row comes from: its `subset`, or its metadata's `subset` or `dataset`."""
    metadata = row.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    return row.get("subset") or metadata.get("subset") or metadata.get("dataset")


if __name__ == "__main__":
    McqaServer.run_webserver()
