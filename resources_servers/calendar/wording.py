"""Let a model reword a simulated user's sentences in a persona's voice without changing the request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym import DataError, EndpointError, NeMoGymAsyncOpenAI, NeMoGymChatCompletion
from nemo_gym.grading import strip_reasoning
from resources_servers.calendar.conversation import PlayedDay

PROMPT = (Path(__file__).parent / "prompts" / "wording.md").read_text("utf-8")
TRIES = 3
"""Maximum number of attempts to reword a sentence. If all fail, the sentence stays unchanged."""
LONGEST = 600
"""Maximum number of characters of a chat message."""
AT_ONCE = 16

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class UserModel:
    """A Chat Completions endpoint or model server that rewords a user's sentences."""

    base_url: str
    """The address up to and including `/v1`."""
    model: str
    api_key: str = field(default="none", repr=False)


def keeps(text: str, original: str, must_tell: Sequence[str]) -> bool:
    """Return whether a rewording has all required parts, the numbers of the original, and an allowed length."""
    folded = " ".join(text.casefold().split())
    has_parts = all(part.casefold() in folded for part in must_tell)
    return has_parts and set(_NUMBER.findall(text)) == set(_NUMBER.findall(original)) and 0 < len(text) <= LONGEST


async def reworded(days: Sequence[PlayedDay], user: UserModel, seed: int) -> list[list[str]]:
    """Return each day's sentences in the model's words. A sentence stays unchanged if every rewording fails.

    Raises `DataError` with the cause if the endpoint does not answer.
    """
    endpoint = NeMoGymAsyncOpenAI(base_url=user.base_url, api_key=user.api_key)
    gate = asyncio.Semaphore(AT_ONCE)

    async def sentences(number: int, day: PlayedDay) -> list[str]:
        async with gate:
            return [
                await _wording(endpoint, user.model, day, turn, seed=seed * 1_000_003 + number)
                for turn in range(len(day.utterances))
            ]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sentences(number, day)) for number, day in enumerate(days)]
    except ExceptionGroup as failures:
        # Do not use `except*`, because before Python 3.11.4, an exception raised inside it is wrapped in a group.
        cause = failures.exceptions[0]
        if not isinstance(cause, EndpointError | ValueError):
            raise
        raise DataError(f"The user model at {user.base_url} failed: {cause}. No row was written.") from cause
    finally:
        await endpoint.aclose()
    return [task.result() for task in tasks]


async def _wording(endpoint: NeMoGymAsyncOpenAI, model: str, day: PlayedDay, turn: int, *, seed: int) -> str:
    original, must_tell, _ = day.utterances[turn]
    question = PROMPT.format(
        persona=day.persona.name,
        text=original,
        parts="\n".join(f"- {part}" for part in must_tell) or "- nothing; it is small talk",
    )
    for attempt in range(TRIES):
        answer = await endpoint.create_chat_completion(
            model=model,
            messages=[{"role": "user", "content": question}],
            # If the endpoint supports `seed`, the same seed gives the same rewordings.
            seed=(seed * 31 + turn * TRIES + attempt) % 2**31,
        )
        content = NeMoGymChatCompletion.model_validate(answer).choices[0].message.content
        text = strip_reasoning(content or "").strip('" \n')
        if keeps(text, original, must_tell):
            return text
    return original
