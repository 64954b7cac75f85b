"""The user that a row describes, and the scripted user."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from nemo_gym import InvalidTask
from nemo_gym.jsonl import JsonObject
from responses_api_agents.user_simulation_agent.dialogue import Line
from responses_api_agents.user_simulation_agent.languages import Word, check_visible, is_question


class Answer(BaseModel):
    """A scripted user's reply to messages that contain a keyword."""

    model_config = ConfigDict(extra="forbid")

    asked: list[Annotated[str, AfterValidator(check_visible)]] = Field(min_length=1)
    """The keywords: words or phrases of which the assistant's message must contain at least one. Case is ignored."""
    says: str = Field(min_length=1)


class UserProfile(BaseModel):
    """The simulated user that a row describes."""

    model_config = ConfigDict(extra="forbid")

    persona: str = ""
    """The user's identity and way of talking."""
    goal: str = ""
    """The user's aim in the conversation."""
    facts: dict[str, str | int | float] = {}
    """Facts that the user reveals if asked."""
    script: list[str] = []
    """The user's messages, one per turn. A model that plays the user puts them into its own words."""
    answers: list[Answer] = []
    otherwise: str = Field(default="I have no wish about that; please decide yourself.", min_length=1)
    """A scripted user's reply to a question that no answer fits, once the script is finished."""


class Said(NamedTuple):
    text: str
    is_satisfied: bool
    """Whether the user has reached its goal. If so, the text, which may be empty, is a farewell."""


class SimulatedUser(Protocol):
    """The interface of a simulated user, who takes part in one conversation."""

    async def speak(self, dialogue: list[Line]) -> Said:
        """Return the user's next turn. Raise `RolloutError` if the user cannot produce one."""

    @property
    def usage(self) -> BaseModel | None:
        """The summed token counts of the model that plays the user, or None if there are none."""

    @property
    def model(self) -> str | None:
        """The name of the model that plays the user, or None if it is not known."""

    @property
    def role(self) -> JsonObject | None:
        """The requests' parameters and the response with all turns of the model that plays the user, or None."""


class ScriptedUser:
    """A user that replies to messages with keywords, and otherwise says the next line of its script.

    A question with a keyword is answered each time, a statement with a keyword only if the user has not given this
    answer before. After the last line of the script, any other question gets the reply `otherwise`, and any other
    statement satisfies the user.
    """

    usage = None
    model = None
    role = None

    def __init__(self, profile: UserProfile) -> None:
        self._profile = profile
        self._lines = iter(profile.script)
        self._words = [[Word(word) for word in answer.asked] for answer in profile.answers]
        self._given: set[int] = set()

    async def speak(self, dialogue: list[Line]) -> Said:
        """Return the answers that fit the assistant's message, else the script's next line.

        After the script, return `otherwise` for a question, or else an empty turn with `is_satisfied`.
        """
        if not dialogue:
            opening = next(self._lines, self._profile.goal)
            if not opening:
                raise InvalidTask(
                    "the row's user has neither a script nor a goal to open the conversation with: add one of the two"
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
