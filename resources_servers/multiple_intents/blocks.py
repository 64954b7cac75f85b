"""Blocks of wishes. A block is a single wish, or a chain in which each wish depends on the previous wishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nemo_gym import ToolError
from resources_servers.multiple_intents.calendar_wishes import (
    CALENDAR_WISHES,
    LENGTHS_MIN,
    cancel_first,
    cancel_next,
    set_length_of_first,
)
from resources_servers.multiple_intents.customer_wishes import CUSTOMER_WISHES, a_customer, assign_customer
from resources_servers.multiple_intents.email_wishes import (
    EMAIL_WISHES,
    answer_latest,
    delete_latest,
    send_about_next,
    send_to_seller,
)
from resources_servers.multiple_intents.questions import QUESTIONS
from resources_servers.multiple_intents.task_wishes import TASK_WISHES
from resources_servers.multiple_intents.wishes import Answer, Item, Question, Wish
from resources_servers.workplace_assistant.database import Company, Database
from resources_servers.workplace_assistant.errands import NOTES, Call, Draw
from resources_servers.workplace_assistant.toolkits import TOOLS

Block = tuple[Item, ...]
Outcome = list[Call] | Answer
"""The calls of a wish, or the answer to a question."""


TOOLKITS = (CALENDAR_WISHES, CALENDAR_WISHES, EMAIL_WISHES, TASK_WISHES, CUSTOMER_WISHES)
"""The functions that draw each toolkit's wishes. The calendar is listed twice, because it has the most kinds."""


def draw_wish(draw: Draw) -> Wish:
    while (wish := draw.one(draw.one(TOOLKITS))(draw)) is None:
        pass
    return wish


def draw_item(draw: Draw) -> Item:
    """Draw a wish or, with a probability of 1/3, a question."""
    return draw_wish(draw) if draw.random.random() < 2 / 3 else draw.one(QUESTIONS)(draw)


def draw_chain(draw: Draw) -> Block:
    """Draw a chain: a wish, possibly a second wish, and possibly a question about their effects."""
    while True:
        wishes = draw.one(CHAINS)(draw)
        questions: Sequence[Question] = wishes[-1].follow_ups if wishes else ()
        chain = (*wishes, draw.one(questions)) if questions else tuple(wishes)
        if len(chain) > 1:
            return chain


def _follow_up(draw: Draw) -> list[Wish]:
    return [draw_wish(draw)]


def _emails_of_one_sender(draw: Draw) -> list[Wish]:
    person = draw.colleague()
    return [delete_latest(person), answer_latest(person, draw.one(NOTES))]


def _first_meetings_of_a_day(draw: Draw) -> list[Wish]:
    day = draw.working_day().isoformat()
    return [cancel_first(day), set_length_of_first(day, draw.one(LENGTHS_MIN))]


def _next_meetings_with_one_person(draw: Draw) -> list[Wish]:
    person = draw.colleague()
    return [cancel_next(person), send_about_next(draw, person)]


def _new_seller(draw: Draw) -> list[Wish]:
    customer = a_customer(draw)
    wish = assign_customer(draw, customer)
    return [wish, send_to_seller(draw, customer["customer_name"])] if wish else []


CHAINS: tuple[Callable[[Draw], list[Wish]], ...] = (
    _follow_up, _follow_up, _follow_up, _emails_of_one_sender, _first_meetings_of_a_day,
    _next_meetings_with_one_person, _new_seller,
)  # fmt: skip


def after(company: Company, calls: Iterable[Call]) -> Database:
    """Execute calls on a new database of the company, and return the database. Raises a tool's `ToolError`."""
    database = Database(company)
    for call in calls:
        TOOLS[call.name](database, **call.arguments)
    return database


def calls_in(outcomes: Iterable[Outcome]) -> list[Call]:
    """Return the calls of all wishes, in order."""
    return [call for outcome in outcomes if isinstance(outcome, list) for call in outcome]


def outcomes_of(block: Block, company: Company, before: Sequence[Call]) -> list[Outcome] | None:
    """Return the outcomes of a block's items after the calls in `before`, or None if an item is not possible."""
    done = list(before)
    found: list[Outcome] = []
    for item in block:
        try:
            database = after(company, done)
        except ToolError:
            # The block is not possible, because an earlier wish has deleted the row that a call needs.
            return None
        outcome = item.calls(database) if isinstance(item, Wish) else item.answer(database)
        if not outcome:
            return None
        found.append(outcome)
        done += calls_in([outcome])
    return found


def independent_outcomes(
    blocks: Sequence[Block], company: Company, before: Sequence[Call]
) -> list[list[Outcome]] | None:
    """Return each block's outcomes, or None if one is impossible or changes when other blocks come first."""
    alone = [outcomes_of(block, company, before) for block in blocks]
    sound = [outcomes for outcomes in alone if outcomes is not None]
    if len(sound) < len(blocks):
        return None
    for place, block in enumerate(blocks):
        others = [calls_in(other) for other in (*sound[:place], *sound[place + 1 :])]
        # Try each other block alone and all of them together, because two of them may cancel each other out.
        for calls in (*others, [call for each in others for call in each]):
            if outcomes_of(block, company, [*before, *calls]) != sound[place]:
                return None
    return sound


def depends_on_itself(block: Block, outcomes: Sequence[Outcome], company: Company, before: Sequence[Call]) -> bool:
    """Return whether each later item of a chain would have another outcome without the earlier items."""
    return all(
        outcomes_of((item,), company, before) != [outcome]
        for item, outcome in zip(block[1:], outcomes[1:], strict=True)
    )
