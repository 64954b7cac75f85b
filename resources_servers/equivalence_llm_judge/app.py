"""Grade a free-form answer by asking a judge whether it is equivalent to the expected one."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyResponse,
    EnvironmentFailed,
    InvalidTask,
    ModelServerRef,
    NeMoGymResponseCreateParamsNonStreaming,
    ReverifyMode,
    SimpleResourcesServer,
    compute_pass_majority_metrics,
)
from nemo_gym.grading import (
    Judge,
    JudgeConfig,
    PatternFailed,
    PatternSearch,
    PromptFile,
    Verdict,
    filled_with,
)
from resources_servers.equivalence_llm_judge.extraction import (
    ROW_PATTERN,
    EquivalenceVerifyRequest,
    last_user_text,
    patterns_for,
)

ANSWER_KEY = "extracted_answer"


JudgePrompt = Annotated[PromptFile, filled_with("question", "expected_answer", "generated_answer")]


class EquivalenceConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = NeMoGymResponseCreateParamsNonStreaming(
        input=[]
    )
    judge_endpoint_max_concurrency: int | None = 64
    judge_system_message: str | None = None
    judge_prompt_template_fpath: JudgePrompt = Path(__file__).parent / "prompts" / "judge.md"
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    question_extract_regex: str | None = None
    """A regex for the question in the last user message, for rows without `question`."""
    response_extract_regex: str | None = None
    """A regex for the answer in the last assistant message, for rows without their own regex."""
    check_twice_swap: bool = False
    reward_if_swap_fails: float = 0.0
    use_per_record_regex: bool = True
    extraction_length_threshold: int | None = Field(default=120, ge=0)
    """If the expected answer has more characters than this, the judge gets the whole message, not an extract."""
    check_full_generation_on_fail: bool = True
    reward_if_full_generation_succeeds: float = 0.5


class Grade(NamedTuple):
    """A reward, the rule that led to it, and the verdicts."""

    reward: float
    why: str
    verdicts: list[Verdict]


class EquivalenceServer(SimpleResourcesServer):
    """A verifier that extracts the answer and asks a judge whether it is equivalent to the expected one."""

    config: EquivalenceConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
    )

    _pattern_search: PatternSearch = PrivateAttr(default_factory=PatternSearch)

    @cached_property
    def judge(self) -> Judge:
        """The judge that decides whether two answers are equivalent."""
        config = self.config
        settings = JudgeConfig(
            model_server=config.judge_model_server,
            prompt=config.judge_prompt_template_fpath,
            system_message=config.judge_system_message,
            labels=[config.judge_equal_label, config.judge_not_equal_label],
            max_concurrency=config.judge_endpoint_max_concurrency,
            responses_create_params=config.judge_responses_create_params,
            swap=("expected_answer", "generated_answer") if config.check_twice_swap else None,
        )
        return Judge(settings, self.server_client)

    async def startup(self) -> None:
        """Create the judge, so that an unusable prompt is reported at startup."""
        await super().startup()
        _ = self.judge

    async def aclose(self) -> None:
        await super().aclose()
        self._pattern_search.close()

    async def verify(self, body: EquivalenceVerifyRequest) -> BaseVerifyResponse:
        whole = body.response.answer_text
        extracted = await self._extracted(body, whole)
        question = body.question if body.question is not None else await self._question(body)
        grade = await self._grade(question, body.expected_answer, extracted, whole)
        evaluations = [call.record() for verdict in grade.verdicts for call in verdict.calls]
        return BaseVerifyResponse.grade(
            body,
            reward=grade.reward,
            extracted_answer=extracted or None,
            judge_evaluations=evaluations,
            why=grade.why,
        )

    async def _grade(self, question: str, expected: str, extracted: str, whole: str) -> Grade:
        config = self.config
        verdicts: list[Verdict] = []
        if extracted:
            verdict = await self.judge.ask(question=question, expected_answer=expected, generated_answer=extracted)
            verdicts.append(verdict)
            if verdict.label == config.judge_equal_label:
                return Grade(1.0, "the judge finds the answer equivalent to the expected one", verdicts)
            if verdict.was_swapped:
                why = "the judge finds the answer equivalent in only one order of the two (reward_if_swap_fails)"
                return Grade(config.reward_if_swap_fails, why, verdicts)
        found = "the judge does not find the answer equivalent" if extracted else "no answer was found in the text"
        if extracted == whole or not config.check_full_generation_on_fail:
            return Grade(0.0, found, verdicts)
        verdict = await self.judge.ask(question=question, expected_answer=expected, generated_answer=whole)
        verdicts.append(verdict)
        if verdict.label != config.judge_equal_label:
            return Grade(0.0, f"{found}, and the judge does not find the whole message equivalent", verdicts)
        why = f"{found}, but the judge finds the whole message equivalent (reward_if_full_generation_succeeds)"
        return Grade(config.reward_if_full_generation_succeeds, why, verdicts)

    async def _extracted(self, body: EquivalenceVerifyRequest, whole: str) -> str:
        """Return what the first matching regex captures, or "" if none matches. Without a regex, return `whole`."""
        config = self.config
        patterns = patterns_for(
            body,
            otherwise=config.response_extract_regex,
            use_own=config.use_per_record_regex,
            longest=config.extraction_length_threshold,
        )
        # Try the other regexes as well, so that an invalid one is reported even if the first finds the answer.
        for pattern in patterns.texts[1:]:
            await self._found(pattern, "", patterns.key)
        for pattern in patterns.texts:
            found = await self._found(pattern, whole, patterns.key)
            if found and found.strip():
                return found.strip()
        return "" if patterns.texts else whole

    async def _question(self, body: EquivalenceVerifyRequest) -> str:
        asked, pattern = last_user_text(body), self.config.question_extract_regex
        found = await self._found(pattern, asked, "question_extract_regex") if pattern else None
        return found or asked

    async def _found(self, pattern: str, text: str, key: str) -> str | None:
        try:
            return await self._pattern_search.find_last_match(pattern, text)
        except PatternFailed as error:
            kind = InvalidTask if key == ROW_PATTERN else EnvironmentFailed
            source = "row" if key == ROW_PATTERN else "config"
            message = f"{self.config.name}: {key}: {error}. Fix the regex in the {source}."
            raise kind(message, server=self.config.name) from error

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY).metrics


if __name__ == "__main__":
    EquivalenceServer.run_webserver()
