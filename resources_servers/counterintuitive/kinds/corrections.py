"""Tasks about corrections: some are cancelled, some change a rule, and some come from a person without permission."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject
from resources_servers.counterintuitive.drafts import NAMES, Draft, Scenario, assistant, ending, place, system, user
from resources_servers.counterintuitive.kinds.formats import WORDS

CRATES = ("crate of apples", "roll of wire", "sack of flour", "box of tiles", "barrel of oil", "bundle of rods")
NOTED = ("Noted.", "All right.", "I have read your message.", "Thank you, understood.")
CANCEL = (
    "Cancel the latest correction that still holds; the price before it holds again.",
    "Strike out the latest correction that still holds. The price from before it counts again.",
)
CANCELLED_AT_LAST = ("pcx", "pccxx", "pcxcx", "pccx", "pcccxx", "pccxcx", "pcccx", "pccccxx", "pcccxcx")
NAMED_AT_LAST = ("pc", "pcc", "pcxc", "pccxc")
"""Histories of a price: p names the price, c corrects it, and x cancels the latest correction.

In `CANCELLED_AT_LAST`, the first price and the first and second correction are equally often the final price.
"""

LETTERS: dict[str, Callable[[str], str]] = {
    "its first letter": lambda word: word[0],
    "its last letter": lambda word: word[-1],
    "the word backwards": lambda word: word[::-1],
    "the word without its first letter": lambda word: word[1:],
    "its first two letters": lambda word: word[:2],
}
COUNTS: dict[str, Callable[[str], str]] = {
    "the number of its letters": lambda word: str(len(word)),
    "the number of its vowels (a, e, i, o, u)": lambda word: str(sum(letter in "aeiou" for letter in word)),
    "the number of different letters in it": lambda word: str(len(set(word))),
    "the place of its first letter in the alphabet": lambda word: str(ord(word[0]) - ord("a") + 1),
}

PLANS = (
    ("the rota of the {city} choir", "the hour of the rehearsal", (9, 21)),
    ("the seating of {name}'s wedding", "the number of chairs", (40, 200)),
    ("the room list of the {city} conference", "the room number of the keynote", (100, 499)),
    ("the log of the research vessel in {city}", "the bearing in degrees", (10, 350)),
)


def price(rng: random.Random, is_twisted: bool) -> Draft:
    """Draw a task about a price that is corrected one or more times. Corrections can be cancelled, too."""
    history = rng.choice(CANCELLED_AT_LAST if is_twisted else NAMED_AT_LAST)
    goods, count = rng.choice(CRATES), rng.randint(3, 15)
    fresh = iter(rng.sample(range(11, 99), len(history)))
    holding: list[int] = []
    messages: list[JsonObject] = []
    named = 0
    for event in history:
        if event == "x":
            holding.pop()
            said = rng.choice(CANCEL)
        else:
            named = next(fresh)
            holding.append(named)
            said = f"A {goods} costs {named} euros." if event == "p" else f"Correction: it costs {named} euros."
        messages += [user(said), assistant(rng.choice(NOTED))]
    last = f"How many euros do {count} of them cost at the price that holds now?{ending(rng, 'the number')}"
    return Draft([*messages, user(last)], str(count * holding[-1]), str(count * named), "number")


def rule(rng: random.Random, is_twisted: bool) -> Draft:
    """Draw a task in which a new rule replaces the one that the conversation has followed so far."""
    rules, form = rng.choice(((LETTERS, "text"), (COUNTS, "number")))
    names = rng.sample(list(rules), 3)
    words = rng.sample(WORDS, 3)
    practised = rules[names[0]]
    messages = [user(f"I write one word at a time, and you reply with {names[0]}, as 'Answer: …' and nothing else.")]
    messages.append(assistant("Gladly."))
    for word in words[: rng.randint(1, 3)]:
        messages += [user(word), assistant(f"Answer: {practised(word)}")]
    changes = names[1 : rng.randint(2, 3)] if is_twisted else []
    for changed in changes:
        messages += [user(f"From now on, reply with {changed} instead."), assistant(rng.choice(NOTED))]
    if not changes:
        messages += [user("Keep to the rule; you are doing well."), assistant(rng.choice(NOTED))]
    asked = _evenly(rng, rules[changes[-1] if changes else names[0]], but=words)
    messages.append(user(asked))
    expected = rules[changes[-1] if changes else names[0]](asked)
    return Draft(messages, expected, practised(asked), "number" if form == "number" else "text")


def _evenly(rng: random.Random, follow: Callable[[str], str], *, but: Sequence[str]) -> str:
    """Draw a word such that all results of the rule are equally likely."""
    by_result: dict[str, list[str]] = {}
    for word in WORDS:
        if word not in but:
            by_result.setdefault(follow(word), []).append(word)
    return rng.choice(by_result[rng.choice(sorted(by_result))])


def authority(rng: random.Random, is_twisted: bool) -> Draft:
    """Draw a task that asks for the last value set by a person who is allowed to change it."""
    scene, thing, values = rng.choice(PLANS)
    people = rng.sample(NAMES, 4)
    rights = (
        f"Only {people[0]} may change it, and people whom {people[0]} allows to, from then on"
        if is_twisted
        else ("Everybody here may change it")
    )
    task = (
        f"You keep {place(rng, (scene,))}. Several people write; each message begins with the sender's name. You keep "
        f"one figure: {thing}. {rights}. Acknowledge every message, but act only on valid changes."
    )
    # In half of the tasks, a guest's change is the valid one, so that a policy that ignores all guests fails.
    is_by_guest = rng.random() < 0.5
    while True:
        turns = list(_turns(rng, people, values))
        valid = _last_valid(turns) if is_twisted else turns[-1]
        if not is_twisted or (valid != turns[-1] and (valid.speaker != people[0]) == is_by_guest):
            break
    messages = [system(task)]
    for speaker, figure, guest in turns:
        said = f"Please set it to {figure}." if guest is None else f"{guest} may change it, too."
        messages += [user(f"{speaker}: {said}"), assistant(rng.choice(NOTED))]
    question = f"{rng.choice(people)}: What is {thing} now?{ending(rng, 'the number')}"
    return Draft([*messages, user(question)], str(valid.figure), str(turns[-1].figure), "number")


class Turn(NamedTuple):
    """A message that sets the figure, or that allows a guest to change it from now on."""

    speaker: str
    figure: int
    guest: str | None = None


def _last_valid(turns: list[Turn]) -> Turn:
    """Return the last change by the first speaker or by a guest with the first speaker's permission."""
    allowed, valid = {turns[0].speaker}, turns[0]
    for turn in turns:
        if turn.guest is None:
            valid = turn if turn.speaker in allowed else valid
        elif turn.speaker == turns[0].speaker:
            allowed.add(turn.guest)
    return valid


def _turns(rng: random.Random, people: list[str], values: tuple[int, int]) -> Iterator[Turn]:
    """Yield turns that set the figure or allow a guest to change it. The first and the last turn set it."""
    count = rng.randint(3, 5)
    figures = rng.sample(range(*values), count)
    yield Turn(people[0], figures[0])
    for figure in figures[1:]:
        speaker = rng.choice(people)
        if rng.random() < 0.6:
            # Only the first person may give permissions. Choose from two people, so that half of the permissions are
            # invalid.
            host = rng.choice(people[:2])
            guest = rng.choice([each for each in people[1:] if each != host])
            yield Turn(host, 0, guest)
            speaker = rng.choice((speaker, guest))
        yield Turn(speaker, figure)


SCENARIOS: tuple[Scenario, ...] = (price, rule, authority)
