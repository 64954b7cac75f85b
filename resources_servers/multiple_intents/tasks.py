"""Data models for a row's wishes, which decide the reward."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from resources_servers.multiple_intents.answers import Form, is_right
from resources_servers.workplace_assistant.app import GroundTruthCall


class Change(BaseModel):
    """A wish that is fulfilled by tool calls."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["add", "change", "cancel"]
    turn: int = Field(default=1, ge=1)
    """The number of the message that contains the wish, counted from 1."""
    calls: list[GroundTruthCall] = Field(min_length=1)


class Question(BaseModel):
    """A question in a message of the user. The reply to this message must contain the answer."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["ask"]
    turn: int = Field(default=1, ge=1)
    number: int = Field(ge=1, le=99)
    """The question's number, such as 1 in the answer line `Q1: 4`."""
    form: Form
    answer: str
    """A number in digits, a person's address, a day as YYYY-MM-DD, or a time as HH:MM."""
    unit: str | None = None
    """A word that may follow the number, such as "minutes"."""

    @property
    def calls(self) -> list[GroundTruthCall]:
        """An empty list, because a question changes nothing."""
        return []

    @model_validator(mode="after")
    def _has_an_answer(self) -> Question:
        is_right("", self.form, self.answer)
        return self


Wish = Annotated[Change | Question, Field(discriminator="kind")]


class Task(BaseModel):
    """The part of a row that decides the reward."""

    model_config = ConfigDict(extra="allow")

    company: int | None = Field(default=None, ge=0)
    """The seed of the company that the wishes are about. Without a seed, they are about the server's company."""
    wishes: list[Wish] = Field(min_length=1)
    withdrawn_calls: list[GroundTruthCall] = []
    """The calls of a withdrawn wish. None of their effects may remain."""
    subset: str | None = None
