"""A user's messages in one or several turns, with the expected changes and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import TypeVar

from nemo_gym import InvalidTask
from nemo_gym.jsonl import JsonObject
from resources_servers.multiple_intents.blocks import (
    Block,
    Outcome,
    calls_in,
    depends_on_itself,
    draw_chain,
    draw_item,
    draw_wish,
    independent_outcomes,
    outcomes_of,
)
from resources_servers.multiple_intents.effects import effects_of_each
from resources_servers.multiple_intents.wishes import Question, Wish
from resources_servers.multiple_intents.wording import message, sentence, withdrawn_at_once, withdrawn_later
from resources_servers.workplace_assistant.app import GroundTruthCall
from resources_servers.workplace_assistant.database import Company
from resources_servers.workplace_assistant.errands import Call, Draw

T = TypeVar("T")

FEWEST_WISHES, MOST_WISHES = 2, 6


class NoSense(Exception):
    """An error for drawn wishes that cannot be fulfilled, or whose meaning depends on the order of other wishes."""


@dataclass
class Scenario:
    """A user's conversation in progress: the messages so far, and the requested changes and answers."""

    draw: Draw
    messages: list[str] = field(default_factory=list)
    wishes: list[JsonObject] = field(default_factory=list)
    """The wishes and questions that were not withdrawn, in the format of a row."""
    done: list[Call] = field(default_factory=list)
    """The calls of the wishes that were not withdrawn."""
    withdrawn: list[Call] = field(default_factory=list)

    @property
    def company(self) -> Company:
        return self.draw.company

    def outcomes(self, blocks: Sequence[Block]) -> list[list[Outcome]]:
        """Return each block's outcomes.

        Raises `NoSense` if an item is impossible, if a block depends on another block, or if a later item of a chain
        does not depend on the earlier items.
        """
        found = independent_outcomes(blocks, self.company, self.done)
        if found is None:
            raise NoSense
        for block, outcomes in zip(blocks, found, strict=True):
            if not depends_on_itself(block, outcomes, self.company, self.done):
                raise NoSense
        return found

    def outcome(self, question: Question, withdrawn: Sequence[Call]) -> Outcome:
        """Return a question's answer.

        Raises `NoSense` if the question cannot be answered, or if the withdrawn calls would not change the answer.
        """
        held = outcomes_of((question,), self.company, self.done)
        if held is None or held == outcomes_of((question,), self.company, [*self.done, *withdrawn]):
            raise NoSense
        return held[0]

    def order(self, item: Wish | Question, outcome: Outcome) -> str:
        """Record a wish or question of the current turn, and return its wording."""
        turn = len(self.messages) + 1
        if isinstance(outcome, list):
            assert isinstance(item, Wish)
            self.wishes.append({"kind": item.kind, "turn": turn, "calls": as_json(outcome)})
            self.done += outcome
            return item.text
        number = 1 + sum(wish["kind"] == "ask" for wish in self.wishes)
        answer = {name: value for name, value in outcome._asdict().items() if value is not None}
        self.wishes.append({"kind": "ask", "turn": turn, "number": number, **answer})
        return f"{item.text} (Q{number})"

    def withdraw(self, wish: Wish, others: Sequence[Block]) -> list[list[Outcome]]:
        """Record a withdrawn wish, and return the outcomes of the other blocks.

        Raises `NoSense` if another wish is about the same thing, because it would be unclear which wish is withdrawn.
        """
        (calls,), *outcomes = self.outcomes([(wish,), *others])
        self.withdrawn = calls_in([calls])
        abouts = {item.about for block in others for item in block if isinstance(item, Wish)}
        ids = ids_in(calls_in(outcome for found in outcomes for outcome in found))
        if wish.about in abouts or ids & ids_in(self.withdrawn):
            raise NoSense
        return outcomes

    def orders(self, blocks: Sequence[Block], outcomes: Sequence[Sequence[Outcome]]) -> list[list[str]]:
        """Record the wishes and questions of the blocks, and return the wordings of each block."""
        pairs = zip(blocks, outcomes, strict=True)
        return [[self.order(item, found) for item, found in zip(*pair, strict=True)] for pair in pairs]

    def speak(self, blocks: Sequence[Block]) -> None:
        """Add a message with the wishes and questions of these blocks."""
        orders = self.orders(blocks, self.outcomes(blocks))
        self.messages.append(message(self.draw, orders, is_first=not self.messages))


def ids_in(calls: Iterable[Call]) -> set[tuple[str, str]]:
    """Return the rows that the calls name, as pairs of an argument such as `event_id` and its value."""
    return {pair for call in calls for pair in call.arguments.items() if pair[0].endswith("_id")}


def as_json(calls: Sequence[Call]) -> list[dict[str, str]]:
    return [{"name": name, "arguments": json.dumps(given, ensure_ascii=False)} for name, given in calls]


def single_turn(scenario: Scenario) -> None:
    """Add a message with several independent wishes."""
    scenario.speak(_items(scenario.draw, 2, 5))


def dependent(scenario: Scenario) -> None:
    """Add a message with a chain of dependent wishes, and up to three independent items."""
    blocks = [draw_chain(scenario.draw), *_items(scenario.draw, 0, 3)]
    scenario.speak(_shuffled(scenario.draw, blocks))


def several_turns(scenario: Scenario) -> None:
    """Add two or three messages with wishes. Some wishes depend on earlier ones."""
    draw = scenario.draw
    scenario.speak(_items(draw, 2, 3))
    for _ in range(draw.one((1, 1, 2))):
        scenario.speak([draw_chain(draw)] if draw.random.random() < 1 / 2 else _items(draw, 1, 2))


def withdrawn(scenario: Scenario) -> None:
    """Add a wish that is withdrawn in the same message or in the next one."""
    wish = draw_wish(scenario.draw)
    if wish.can_be_undone and scenario.draw.random.random() < 2 / 3:
        _withdrawn_later(scenario, wish)
    else:
        _withdrawn_at_once(scenario, wish)


def _withdrawn_at_once(scenario: Scenario, wish: Wish) -> None:
    draw, others = scenario.draw, _items(scenario.draw, 1, 3)
    orders = scenario.orders(others, scenario.withdraw(wish, others))
    orders.insert(draw.random.randrange(len(orders) + 1), [wish.text])
    after = [withdrawn_at_once(wish), *_asked_at_the_end(scenario, wish)]
    scenario.messages.append(message(draw, orders, after=after))


def _withdrawn_later(scenario: Scenario, wish: Wish) -> None:
    draw, others = scenario.draw, _items(scenario.draw, 1, 2)
    is_asked_before = wish.follow_ups and draw.random.random() < 1 / 2
    block: Block = (wish, draw.one(wish.follow_ups)) if is_asked_before else (wish,)
    outcomes = scenario.withdraw(wish, others)
    (_, *answers), *_ = scenario.outcomes([block, *others])
    first = [wish.text, *(scenario.order(item, answer) for item, answer in zip(block[1:], answers, strict=True))]
    scenario.messages.append(message(draw, [first, *scenario.orders(others, outcomes)]))

    more = _items(draw, 0, 1)
    # Also check the wishes of the same message, because the user may withdraw the wish before or after them.
    orders = scenario.orders(more, scenario.withdraw(wish, more))
    after = [withdrawn_later(wish), *_asked_at_the_end(scenario, wish)]
    scenario.messages.append(message(draw, orders, after=after, is_first=False))


def _asked_at_the_end(scenario: Scenario, wish: Wish) -> list[str]:
    if not wish.follow_ups:
        return []
    question = scenario.draw.one(wish.follow_ups)
    return [sentence(scenario.order(question, scenario.outcome(question, scenario.withdrawn)))]


SUBSETS: dict[str, Callable[[Scenario], None]] = {
    each.__name__: each for each in (single_turn, several_turns, dependent, withdrawn)
}


def scenarios(company: Company, seed: int, subsets: Sequence[str]) -> Iterator[tuple[str, Scenario]]:
    """Yield an endless stream of scenarios that cycles through the subsets. The same seed gives the same scenarios."""
    draw = Draw(company, Random(seed))
    for subset in cycle(subsets):
        scenario = None
        while scenario is None:
            scenario = _drawn(draw, SUBSETS[subset])
        yield subset, scenario


def _drawn(draw: Draw, fill: Callable[[Scenario], None]) -> Scenario | None:
    scenario = Scenario(draw)
    try:
        fill(scenario)
        if not FEWEST_WISHES <= len(scenario.wishes) + bool(scenario.withdrawn) <= MOST_WISHES or not scenario.done:
            return None
        wishes = [[GroundTruthCall(**call) for call in wish.get("calls", ())] for wish in scenario.wishes]
        effects_of_each(draw.company, wishes)
    except (NoSense, InvalidTask):
        return None
    return scenario


def _items(draw: Draw, fewest: int, most: int) -> list[Block]:
    return [(draw_item(draw),) for _ in range(draw.random.randrange(fewest, most + 1))]


def _shuffled(draw: Draw, values: Sequence[T]) -> list[T]:
    keys = sorted((draw.random.random(), place) for place in range(len(values)))
    return [values[place] for _, place in keys]
