"""Grade a rollout by its effects on the company and by its answers."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from nemo_gym import NeMoGymResponse
from resources_servers.multiple_intents.answers import answers_in, is_right, replies_in
from resources_servers.multiple_intents.effects import (
    Effects,
    damage,
    effects_of_each,
    effects_on,
    which_are_done,
)
from resources_servers.multiple_intents.tasks import Question, Task
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.effects import listed

COMPONENT_OF_KIND = {"add": "added", "change": "changed", "cancel": "cancelled", "ask": "answered"}
MOST_NAMED = 10
NOTHING_ELSE, NO_TRACE = "nothing_else", "no_trace"
COMPONENTS = (*COMPONENT_OF_KIND.values(), NOTHING_ELSE, NO_TRACE)


class Grade(NamedTuple):
    """The grade of a rollout: whether each wish is fulfilled, descriptions of unwanted changes, and one sentence."""

    done: list[bool]
    damage: list[str]
    why: str
    components: dict[str, float]
    """The share of fulfilled wishes of each kind, and 1 or 0 for the other criteria, such as `nothing_else`."""


def grade(task: Task, database: Database, response: NeMoGymResponse) -> Grade:
    """Return the grade of a rollout with this final database. Raises `InvalidTask` if a call of the row is invalid."""
    wanted = effects_of_each(database.company, [wish.calls for wish in task.wishes])
    actual, expected = effects_on(database), sum(wanted, Effects())
    is_made = which_are_done(actual, wanted)
    replies = [answers_in(reply) for reply in replies_in(response)]
    done = [
        _is_answered(wish, replies) if isinstance(wish, Question) else made
        for wish, made in zip(task.wishes, is_made, strict=True)
    ]
    harm = damage(actual, expected)
    components = {
        component: fmean(shares)
        for kind, component in COMPONENT_OF_KIND.items()
        if (shares := [is_done for wish, is_done in zip(task.wishes, done, strict=True) if wish.kind == kind])
    }
    components[NOTHING_ELSE] = float(not harm)
    if task.withdrawn_calls:
        [withdrawn] = effects_of_each(database.company, [task.withdrawn_calls])
        components[NO_TRACE] = float(not (actual - expected) & withdrawn)
    return Grade(done, sorted(map(str, harm.elements())), _why(task, done, harm), components)


def _why(task: Task, done: list[bool], harm: Effects) -> str:
    missed = [
        f"{number} ({wish.kind})"
        for number, (wish, is_done) in enumerate(zip(task.wishes, done, strict=True), start=1)
        if not is_done
    ]
    found = f"{sum(done)} of {len(done)} wishes are fulfilled"
    found += f", not {', '.join(missed[:MOST_NAMED])}{', …' if len(missed) > MOST_NAMED else ''}" if missed else ""
    return f"{found}; no wish asks for: {listed(harm)}" if harm else found


def _is_answered(question: Question, replies: list[dict[int, str]]) -> bool:
    answers = replies[question.turn - 1] if question.turn <= len(replies) else {}
    answer = answers.get(question.number)
    return answer is not None and is_right(answer, question.form, question.answer, question.unit)
