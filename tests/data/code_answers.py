"""Answers with code to the rows of benchmarks over `code_gen`, and the rewards that they earn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from nemo_gym.jsonl import JsonObject
from nemo_gym.testing import reply, rollout
from resources_servers.code_gen.app import CodeGenServer

Answers = Mapping[str, Callable[[JsonObject], str]]
"""An answer to each row, by kind."""


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def reference(row: JsonObject) -> str:
    code: str = row["verifier_metadata"]["reference"]
    return code


async def reward_of(server: CodeGenServer, row: JsonObject, answer: str) -> float:
    async with rollout(server, **row) as attempt:
        return (await attempt.verify(reply(answer))).reward


async def other_rewards(
    server: CodeGenServer, rows: Iterable[JsonObject], answers: Answers, reward: float
) -> list[tuple[str, str]]:
    """Return the questions and kinds of answers that do not earn this reward."""
    tried = [(row, kind) for row in rows for kind in answers]
    rewards = await asyncio.gather(*(reward_of(server, row, answers[kind](row)) for row, kind in tried))
    return [(row["question"], kind) for (row, kind), got in zip(tried, rewards, strict=True) if got != reward]
