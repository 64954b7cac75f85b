"""Compare the answers to one request in pairs, with a generative reward model as the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, Field

from nemo_gym import (
    JudgeFailed,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    ServerClient,
)
from nemo_gym.grading import SpecialTokens, call_judge
from nemo_gym.jsonl import JsonObject
from resources_servers.genrm_compare.verdicts import Opinion, Unreadable, Verdict, mean_preference, read_verdict

RESPONSES_PATH = "/v1/responses"

ResultT = TypeVar("ResultT")


class ComparisonConfig(BaseModel):
    """The settings that decide which pairs are compared and how the judge is asked."""

    genrm_model_server: ModelServerRef
    """The judge, a server of `responses_api_models/genrm_model`."""
    genrm_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = NeMoGymResponseCreateParamsNonStreaming(
        input=[]
    )
    """Request parameters for the judge, such as the temperature. `input` is replaced."""
    comparison_strategy: Literal["circular", "all_pairs"] = "circular"
    """`circular` compares each answer with the next ones in a circle, and `all_pairs` with all others."""
    circular_neighbours: int = Field(default=1, ge=1)
    """The number of subsequent answers that `circular` compares each answer with."""
    swap_sides: bool = True
    """Whether to ask about each pair in both orders, which cancels the judge's position bias."""
    num_judges_per_comparison: int = Field(default=1, ge=1)
    """The number of verdicts on each pair in each order. The result is their mean."""
    genrm_parse_retries: int = Field(default=3, ge=0)
    """Maximum number of repeated calls of the judge after messages without a verdict."""
    max_concurrency: int | None = Field(default=64, ge=1)
    """Maximum number of concurrent calls to the judge; null for no limit."""
    special_tokens: list[str] = Field(default_factory=list)
    """The judge's special tokens in addition to the common ones. They are escaped in answers."""


@dataclass(frozen=True)
class Comparison:
    """The result for one pair of answers."""

    one: int
    other: int
    preference: float | None
    """The degree to which answer `one` is better, from 0 to 1; None if the judge did not decide."""
    opinions: tuple[Opinion, ...] = ()
    """The judge's verdicts. Empty if the result was clear without the judge."""
    problem: str = ""
    """The reason why the pair was not judged. Empty if it was judged."""


def pairs_of(count: int, neighbours: int | None) -> list[tuple[int, int]]:
    """Pair each of `count` answers in a circle with the next `neighbours` answers. If `neighbours` is None, pair all.

    No pair occurs twice, and an answer is about as often the first of a pair as the second.
    """
    farthest = count // 2 if neighbours is None else min(neighbours, count // 2)
    pairs = {}
    for distance in range(1, farthest + 1):
        for one in range(count):
            other = (one + distance) % count
            pairs.setdefault(frozenset((one, other)), (one, other))
    return list(pairs.values())


def answer_of(response: NeMoGymResponse) -> str:
    """Return the last message without reasoning, or an empty string if the response was cut off."""
    was_cut_off = response.status == "incomplete" or response.incomplete_details is not None
    return "" if was_cut_off else response.answer_text


def preferences_of(comparisons: Iterable[Comparison]) -> dict[tuple[int, int], float]:
    """Return the preferences of the pairs that were judged."""
    return {(each.one, each.other): each.preference for each in comparisons if each.preference is not None}


class PairwiseJudge:
    """A generative reward model that compares pairs of answers."""

    def __init__(self, config: ComparisonConfig, client: ServerClient, *, needs_scores: bool) -> None:
        self._config = config
        self._client = client
        self._needs_scores = needs_scores
        self._gate = asyncio.Semaphore(config.max_concurrency or 2**31)
        self._special_tokens = SpecialTokens(config.special_tokens)

    async def compare(
        self, conversation: Sequence[JsonObject], answers: Sequence[str], principle: str | None
    ) -> list[Comparison]:
        """Return the results of all pairs. Raise `JudgeFailed` if the judge was asked but did not decide any pair."""
        neighbours = None if self._config.comparison_strategy == "all_pairs" else self._config.circular_neighbours
        question = _Question(conversation, [self._special_tokens.escaped(answer) for answer in answers], principle)
        pairs = pairs_of(len(answers), neighbours)
        found = await _all_of(self._compared(question, one, other) for one, other in pairs)
        undecided = [each.problem for each in found if each.problem]
        if undecided and not any(each.opinions for each in found):
            raise JudgeFailed(undecided[0], server=self._config.genrm_model_server.name)
        return found

    async def _compared(self, question: _Question, one: int, other: int) -> Comparison:
        clear = question.clear_preference(one, other)
        is_scored = self._needs_scores and (question.answers[one] or question.answers[other])
        if clear is not None and not is_scored:
            return Comparison(one, other, clear)
        orders = [(one, other), (other, one)] if self._config.swap_sides else [(one, other)]
        orders *= self._config.num_judges_per_comparison
        try:
            opinions = await _all_of(self._opinion(question, first, second) for first, second in orders)
        except JudgeFailed as error:
            # Discard the pair, because the verdicts of only one order would have position bias.
            return Comparison(one, other, None, problem=str(error))
        preference = mean_preference(opinions, one) if clear is None else clear
        return Comparison(one, other, preference, tuple(opinions))

    async def _opinion(self, question: _Question, first: int, second: int) -> Opinion:
        server, problem = self._config.genrm_model_server.name, ""
        asked = self._config.genrm_responses_create_params.model_dump(mode="json", exclude_unset=True)
        asked["input"] = question.messages(first, second)
        for _ in range(1 + self._config.genrm_parse_retries):
            async with self._gate:
                response = await call_judge(
                    self._client,
                    server_name=server,
                    url_path=RESPONSES_PATH,
                    json=asked,
                    response_model=NeMoGymResponse,
                )
            try:
                return Opinion(first, second, _verdict_in(response))
            except Unreadable as error:
                problem = str(error)
        raise JudgeFailed(f"the judge '{server}' did not return a verdict: {problem}", server=server)


@dataclass(frozen=True)
class _Question:
    """A request and its answers."""

    conversation: Sequence[JsonObject]
    answers: Sequence[str]
    principle: str | None

    def clear_preference(self, one: int, other: int) -> float | None:
        """Return the preference if no judge is needed, or None. Equal answers tie, and an empty answer loses."""
        if self.answers[one] == self.answers[other]:
            return 0.5
        return None if self.answers[one] and self.answers[other] else float(bool(self.answers[one]))

    def messages(self, first: int, second: int) -> list[JsonObject]:
        judged = {"response_1": self.answers[first], "response_2": self.answers[second], "principle": self.principle}
        return [
            *self.conversation,
            *({"role": role, "content": text} for role, text in judged.items() if text is not None),
        ]


def _verdict_in(response: NeMoGymResponse) -> Verdict:
    if response.status == "incomplete":
        raise Unreadable("the message was cut off")
    return read_verdict(response.last_text)


async def _all_of(calls: Iterable[Awaitable[ResultT]]) -> list[ResultT]:
    """Run all calls concurrently and return their results. If one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]
