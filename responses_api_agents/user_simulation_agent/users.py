"""The user that a row describes, and the scripted user."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from nemo_gym import InvalidTask
from responses_api_agents.user_simulation_agent.dialogue import Line
from responses_api_agents.user_simulation_agent.languages import Word, check_visible, is_question


class Answer(BaseModel):
    """The reply of a scripted user to a keyword."""

    model_config = ConfigDict(extra="forbid")

    asked: list[Annotated[str, AfterValidator(check_visible)]] = Field(min_length=1)
    """Words or phrases, of which the assistant's message must contain one. Case is ignored."""
    says: str = Field(min_length=1)


class UserProfile(BaseModel):
    """The user of a row."""

    model_config = ConfigDict(extra="forbid")

    persona: str = ""
    """Its identity and its way of talking."""
    goal: str = ""
    """Its aim in the conversation."""
    facts: dict[str, str | int | float] = {}
    """Facts that it reveals if asked."""
    script: list[str] = []
    """Its messages, one line per turn; a model puts them into its own words."""
    answers: list[Answer] = []
    otherwise: str = Field(default="I have no wish about that; please decide yourself.", min_length=1)
    """The reply of a scripted user to a question without an answer."""


class Said(NamedTuple):
    """A turn of the user."""

    text: str
    is_satisfied: bool
    """The user has reached its goal; its text, if any, is a farewell."""


class SimulatedUser(Protocol):
    """The user of one conversation."""

    async def speak(self, dialogue: list[Line]) -> Said:
        """Return the user's next turn. Raise `RolloutError` if that fails."""

    @property
    def usage(self) -> BaseModel | None:
        """The summed token counts of its model, or None."""

    @property
    def model(self) -> str | None:
        """The name of its model, or None."""


class ScriptedUser:
    """A user that answers keywords, otherwise says the next line of its script, and is satisfied after the last one.

    A question gets its answer each time; a statement that mentions a keyword gets it once.
    """

    usage = None
    model = None

    def __init__(self, profile: UserProfile) -> None:
        self._profile = profile
        self._lines = iter(profile.script)
        self._words = [[Word(word) for word in answer.asked] for answer in profile.answers]
        self._given: set[int] = set()

    async def speak(self, dialogue: list[Line]) -> Said:
        """Return the answers to the assistant's message, or the next line, or a satisfied turn."""
        if not dialogue:
            opening = next(self._lines, self._profile.goal)
            if not opening:
                raise InvalidTask(
                    "the row's user has neither a script nor a goal to open the conversation with: add one"
                )
            return Said(opening, is_satisfied=False)
        heard = dialogue[-1].text
        asks = is_question(heard)
        asked = [
            place
            for place, words in enumerate(self._words)
            if (asks or place not in self._given) and any(word.is_in(heard) for word in words)
        ]
        if asked:
            self._given.update(asked)
            return Said(" ".join(self._profile.answers[place].says for place in asked), is_satisfied=False)
        line = next(self._lines, None)
        if line is None and asks:
            line = self._profile.otherwise
        return Said(line or "", is_satisfied=line is None)
