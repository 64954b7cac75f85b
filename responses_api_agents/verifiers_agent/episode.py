"""An episode of another framework as a rollout: its items, its reward and its failure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import AgentFailed, DataError, EnvironmentFailed, ModelFailed, RolloutError, RolloutTimedOut
from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_history import items_of_messages
from nemo_gym.harness import Exchange
from nemo_gym.jsonl import JsonObject

TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
OF_THE_AGENT = ("HarnessError", "InterceptionError", "TunnelError")
OF_THE_MODEL = "ProviderError"
UNGRADED = ("setup_timeout", "finalize_timeout", "scoring_timeout")
"""Ends of a trace after which its rewards mean nothing."""


class Error(BaseModel):
    type: str
    message: str


class Node(BaseModel):
    """A message, in the form of Chat Completions."""

    message: dict[str, Any]
    sampled: bool
    """Whether the model wrote it in this episode."""


class Branch(BaseModel):
    nodes: list[int]
    trainable: bool


class Trace(BaseModel):
    """The part of one agent in an episode."""

    agent: str
    trainable: bool
    ok: bool
    stop_condition: str | None
    is_truncated: bool
    errors: list[Error]
    rewards: dict[str, tuple[float, float] | None]
    """The score and the weight of each reward function; None if it did not run."""
    metrics: dict[str, float | None]
    info: Any
    nodes: list[Node]
    branches: list[Branch]
    tools: list[dict[str, Any]]

    @property
    def reward(self) -> float:
        return math.fsum(score * weight for score, weight in self._scored.values())

    @property
    def _scored(self) -> dict[str, tuple[float, float]]:
        return {name: each for name, each in self.rewards.items() if each is not None}

    @property
    def components(self) -> dict[str, float]:
        """The weighted score of each reward function."""
        return {name: score * weight for name, (score, weight) in self._scored.items()}

    def numbers(self) -> dict[str, float]:
        """Return the unweighted score of each reward function, and the metrics."""
        metrics = {name: value for name, value in self.metrics.items() if value is not None}
        return {**metrics, **{name: score for name, (score, _) in self._scored.items()}}

    def main_branch(self) -> Branch:
        """Return the last branch that is to be trained on."""
        return next((each for each in reversed(self.branches) if each.trainable), self.branches[-1])

    def messages(self, branch: Branch) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the items of a branch: those before the model's first answer, and the others."""
        nodes = [self.nodes[number] for number in branch.nodes]
        first = next((at for at, node in enumerate(nodes) if node.sampled), len(nodes))
        messages = [node.message for node in nodes]
        return items_of(messages[:first]), items_of(messages[first:])

    def record(self) -> JsonObject:
        """Return what a result keeps of a trace, with all its branches."""
        kept = self.model_dump(include={"agent", "trainable", "stop_condition", "is_truncated", "info"})
        scores = {"reward": self.reward, "reward_components": self.components, "metrics": self.numbers()}
        branches = [dict(zip(("input", "output"), self.messages(each), strict=True)) for each in self.branches]
        return {**kept, **scores, "branches": branches}


class Episode(BaseModel):
    """What `worker.py` returns of an episode."""

    framework: str
    """The name of the framework that played it."""
    env: str
    ok: bool
    errors: list[Error]
    traces: list[Trace]

    @classmethod
    def of(cls, framework: str, record: Mapping[str, object]) -> Episode:
        """Parse a record. Raise `EnvironmentFailed` if it is invalid."""
        try:
            episode = cls.model_validate({**record, "framework": framework})
            for trace in episode.traces:
                for branch in trace.branches:
                    _ = [trace.nodes[number] for number in branch.nodes]
        except (ValidationError, IndexError) as error:
            raise EnvironmentFailed(f"{framework} returned an invalid episode: {error}") from error
        return episode

    @property
    def graded(self) -> list[Trace]:
        """The traces that the reward is computed from: those of trained agents, or else all."""
        return [trace for trace in self.traces if trace.trainable] or self.traces

    @property
    def reward(self) -> float:
        """The reward, or its mean over several trained traces."""
        return math.fsum(trace.reward for trace in self.graded) / len(self.graded)

    def numbers(self) -> dict[str, float]:
        """Return the means of all scores and metrics of the graded traces."""
        each = [trace.numbers() for trace in self.graded]
        names = dict.fromkeys(name for numbers in each for name in numbers)
        known = {name: [numbers[name] for numbers in each if name in numbers] for name in names}
        return {name: math.fsum(values) / len(values) for name, values in known.items()}

    def check(self, failure: RolloutError | None) -> None:
        """Raise the failure of an episode that cannot be scored. `failure` is that of the last call of the model."""
        errors = [*self.errors, *(error for trace in self.traces if not trace.ok for error in trace.errors)]
        if failure is not None and (not self.ok or any(error.type == OF_THE_MODEL for error in errors)):
            raise failure
        if errors and not self.ok:
            raise self._failure_of(errors[0])
        if not self.ok or not self.traces:
            raise EnvironmentFailed(f"the episode failed, and {self.framework} recorded no error")
        if failure is not None:
            raise failure
        for trace in self.graded:
            if trace.stop_condition in UNGRADED:
                raise RolloutTimedOut(f"the episode ended with {trace.stop_condition}", tier="environment")
            if not any(node.sampled for node in trace.nodes):
                raise AgentFailed(f"the agent '{trace.agent}' has not asked the model")
            if missing := [name for name, each in trace.rewards.items() if each is None]:
                raise EnvironmentFailed(f"the reward functions {', '.join(missing)} did not run")
            if not math.isfinite(trace.reward):
                raise EnvironmentFailed(f"the reward is {trace.reward}: {trace.components}")
        if not any(trace.rewards for trace in self.graded):
            raise EnvironmentFailed("the taskset lacks a reward function, so its rollouts cannot have a reward")

    def add_tokens(self, exchanges: Iterable[Exchange]) -> None:
        """Add the token ids of the model's answers, which verifiers does not keep, to their nodes."""
        chats = [each.answer for each in exchanges if each.dialect == "chat" and each.answer.get("choices")]
        answers: list[Mapping[str, Any]] = [chat["choices"][0]["message"] for chat in chats]
        waiting = [each for each in answers if all(each.get(name) is not None for name in TOKENS)]
        for node in (node for trace in self.traces for node in trace.nodes if node.sampled):
            at = next((at for at, each in enumerate(waiting) if _is_same(node.message, each)), None)
            if at is not None:
                node.message |= {name: waiting[at][name] for name in TOKENS}
                del waiting[at]

    def result(self, last: Exchange, usage: object, row: Mapping[str, Any]) -> JsonObject:
        """Return what a rollout adds to its row. The conversation is that of the first graded trace."""
        trace = self.graded[0]
        asked, said = trace.messages(trace.main_branch())
        result = {
            "responses_create_params": {**row["responses_create_params"], "input": asked, "tools": trace.tools},
            "response": {**last.response(usage, said).model_dump(mode="json"), "tools": trace.tools},
            "reward": self.reward,
            "reward_components": trace.components,
            "stop_condition": trace.stop_condition,
            "is_truncated": trace.is_truncated,
            f"{self.framework}_info": trace.info,
        }
        if len(self.traces) > 1 or len(trace.branches) > 1:
            result["traces"] = [each.record() for each in self.traces]
        taken = {*row, *result, "traces"}
        numbers = self.numbers().items()
        return {**result, **{f"{self.framework}_{name}" if name in taken else name: value for name, value in numbers}}

    def _failure_of(self, error: Error) -> RolloutError:
        text = f"{self.framework}: {error.type}: {error.message}"
        if error.type == OF_THE_MODEL:
            return ModelFailed(text)
        if error.type == "TimeoutError":
            return RolloutTimedOut(text, tier="environment")
        return AgentFailed(text) if error.type in OF_THE_AGENT else EnvironmentFailed(text)


def items_of(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the items of messages in the form of Chat Completions."""
    try:
        items = items_of_messages(messages, new_id=new_id, keeps_tokens=True)
        return [{"type": item.type, **item.model_dump(mode="json", exclude_unset=True)} for item in items]
    except (DataError, LookupError, TypeError, ValidationError) as error:
        raise AgentFailed(f"the Responses API cannot express a message of the episode: {error}") from error


def _is_same(message: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    return (message.get("content") or "") == (answer.get("content") or "") and _calls(message) == _calls(answer)


def _calls(message: Mapping[str, Any]) -> list[object]:
    return [call.get("id") for call in message.get("tool_calls") or ()]
