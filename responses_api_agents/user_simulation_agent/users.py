"""Who talks to the assistant: the user that a row describes, and one that follows its script."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import InvalidTask
from responses_api_agents.user_simulation_agent.dialogue import Line

QUESTION_MARKS = ("?", "？", "؟")


class Answer(BaseModel):
    """What a scripted user says when it is asked for something."""

    model_config = ConfigDict(extra="forbid")

    asked: list[Annotated[str, Field(pattern=r"\S")]] = Field(min_length=1)
    """Words or phrases; one of them in what the assistant says is enough. Case does not matter."""
    says: str = Field(min_length=1)


class UserProfile(BaseModel):
    """The user of a row."""

    model_config = ConfigDict(extra="forbid")

    persona: str = ""
    """Who it is and how it talks."""
    goal: str = ""
    """What it wants of the assistant."""
    facts: dict[str, str | int | float] = {}
    """What it knows, and tells when it is asked."""
    script: list[str] = []
    """What it says, one line a turn; a model says the same in its own words."""
    answers: list[Answer] = []
    otherwise: str = Field(default="I have no wish about that; please decide yourself.", min_length=1)
    """What a scripted user says to a question that it has no answer to."""


class Said(NamedTuple):
    """A turn of the user."""

    text: str
    is_satisfied: bool
    """The user has what it came for; its words, if any, are a farewell."""


class SimulatedUser(Protocol):
    """Takes the user's turns in one conversation."""

    async def speak(self, dialogue: list[Line]) -> Said:
        """The user's next turn. Raises `RolloutError` where there is none."""

    @property
    def usage(self) -> Any:
        """The token counts of its model, summed; None where it has none."""


class ScriptedUser:
    """Answers by keywords, else says the next line of its script; satisfied when it has nothing left to say.

    A question finds its answer however often it is put; what merely mentions a keyword finds it once.
    """

    usage = None

    def __init__(self, profile: UserProfile) -> None:
        self._profile = profile
        self._lines = iter(profile.script)
        self._patterns = [_pattern(answer.asked) for answer in profile.answers]
        self._given: set[int] = set()

    async def speak(self, dialogue: list[Line]) -> Said:
        """The answers to what the assistant asks, or the next line, or that there is nothing more."""
        if not dialogue:
            opening = next(self._lines, self._profile.goal)
            if not opening:
                raise InvalidTask("the row's user has neither a script nor a goal to open the conversation with")
            return Said(opening, is_satisfied=False)
        heard = dialogue[-1].text
        is_question = any(mark in heard for mark in QUESTION_MARKS)
        asked = [
            place
            for place, pattern in enumerate(self._patterns)
            if (is_question or place not in self._given) and pattern.search(heard)
        ]
        if asked:
            self._given.update(asked)
            return Said(" ".join(self._profile.answers[place].says for place in asked), is_satisfied=False)
        line = next(self._lines, None)
        if line is None and is_question:
            line = self._profile.otherwise
        return Said(line or "", is_satisfied=line is None)


def _pattern(words: list[str]) -> re.Pattern[str]:
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)
