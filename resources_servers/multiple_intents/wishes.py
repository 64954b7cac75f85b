"""A user's wishes for changes, and questions. Their meaning depends on the current state of the company."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from resources_servers.multiple_intents.answers import Form
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.errands import Call

Kind = Literal["add", "change", "cancel"]


class Answer(NamedTuple):
    """The answer to a question. A person is given by an email address. Only numbers have a unit."""

    form: Form
    answer: str
    unit: str | None = None


@dataclass(frozen=True)
class Question:
    """A question of the user. `answer` returns its answer, or None if the question does not make sense."""

    text: str
    answer: Callable[[Database], Answer | None] = field(compare=False)


@dataclass(frozen=True)
class Wish:
    """A change that the user asks for. `calls` returns the calls for it, or an empty list if it makes no sense."""

    kind: Kind
    text: str
    """The wish as an order, without a full stop, such as "cancel my next meeting with Lars"."""
    about: str
    """A noun phrase by which the user can withdraw the wish."""
    calls: Callable[[Database], list[Call]] = field(compare=False)
    follow_ups: tuple[Question, ...] = field(default=(), compare=False)
    """Questions whose answer changes when the wish is fulfilled."""
    can_be_undone: bool = True
    """Whether the tools can undo the change."""


Item = Wish | Question


def count(text: str, unit: str, counted: Callable[[Database], int]) -> Question:
    """Return a question whose answer is a number."""
    return Question(text, lambda database: Answer("number", str(counted(database)), unit))
