"""Have a model say a user's sentences in other words, as its persona would, without a change of what they ask for."""

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
"""So many wordings of a sentence are looked at before it stays as it was."""
LONGEST = 600
"""Characters: what is longer is no message in a chat."""
AT_ONCE = 16

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class UserModel:
    """A model endpoint, or a model server, that speaks Chat Completions."""

    base_url: str
    """The address up to and including `/v1`."""
    model: str
    api_key: str = field(default="none", repr=False)


def keeps(text: str, original: str, must_tell: Sequence[str]) -> bool:
    """Whether a wording tells the same as the original: every part that matters, and no number of its own."""
    folded = " ".join(text.casefold().split())
    are_told = all(part.casefold() in folded for part in must_tell)
    return are_told and set(_NUMBER.findall(text)) == set(_NUMBER.findall(original)) and 0 < len(text) <= LONGEST


async def worded(days: Sequence[PlayedDay], user: UserModel, seed: int) -> list[list[str]]:
    """The sentences of every day in the model's words; one that it cannot keep the sense of stays as it is.

    Raises `DataError` with the endpoint's cause where it does not answer.
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
        # Python before 3.11.4 wraps what an `except*` block raises in one more group.
        cause = failures.exceptions[0]
        if not isinstance(cause, EndpointError | ValueError):
            raise
        raise DataError(f"the user's model at {user.base_url}: {cause}. No row was written.") from cause
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
            # The same seed words the same rows, as far as the endpoint goes by it.
            seed=(seed * 31 + turn * TRIES + attempt) % 2**31,
        )
        said = NeMoGymChatCompletion.model_validate(answer).choices[0].message.content
        text = strip_reasoning(said or "").strip('" \n')
        if keeps(text, original, must_tell):
            return text
    return original
