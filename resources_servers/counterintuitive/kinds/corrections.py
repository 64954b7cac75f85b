"""Corrections in the middle of a conversation: cancelled ones, changed rules, and people who may not correct."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from nemo_gym.jsonl import JsonObject
from resources_servers.counterintuitive.drafts import NAMES, Draft, Scenario, assistant, ending, place, system, user
from resources_servers.counterintuitive.kinds.formats import WORDS

CRATES = ("crate of apples", "roll of wire", "sack of flour", "box of tiles", "barrel of oil", "bundle of rods")
NOTED = ("Noted.", "All right.", "I have read your message.", "Thank you, understood.")
CANCEL = (
    "Cancel the latest correction that still holds; the price before it holds again.",
    "Strike out the latest correction that still holds. The price from before it counts again.",
)
CANCELLED_AT_LAST = ("pcx", "pccx", "pccxx", "pcxcx", "pcccx")
NAMED_AT_LAST = ("pc", "pcc", "pcxc", "pccxc")
"""Histories of a price: p names it, c corrects it, x cancels the latest correction."""

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
    """Calculate with a price whose corrections were partly cancelled."""
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
    """Follow a rule that replaced the one which the conversation has practised so far."""
    rules, form = rng.choice(((LETTERS, "text"), (COUNTS, "number")))
    names = rng.sample(list(rules), 3)
    words = rng.sample(WORDS, 4)
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
    messages.append(user(words[3]))
    expected = rules[changes[-1] if changes else names[0]](words[3])
    return Draft(messages, expected, practised(words[3]), "number" if form == "number" else "text")


def authority(rng: random.Random, is_twisted: bool) -> Draft:
    """Answer with the last value from a person who may change it."""
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
    messages = [system(task)]
    allowed = set(people[:1] if is_twisted else people)
    valid = named = 0
    for speaker, figure, guest in _turns(rng, people, values):
        if guest is None:
            named = figure
            valid = named if speaker in allowed else valid
            said = f"{speaker}: Please set it to {named}."
        else:
            allowed |= {guest} if speaker == people[0] else set()
            said = f"{speaker}: {guest} may change it, too."
        messages += [user(said), assistant(rng.choice(NOTED))]
    question = f"{rng.choice(people)}: What is {thing} now?{ending(rng, 'the number')}"
    return Draft([*messages, user(question)], str(valid), str(named), "number")


def _turns(rng: random.Random, people: list[str], values: tuple[int, int]) -> Iterator[tuple[str, int, str | None]]:
    """Yield who speaks, and a new figure or the person who may change it from now on. The first one has the right."""
    count = rng.randint(3, 5)
    figures = rng.sample(range(*values), count)
    yield people[0], figures[0], None
    for figure in figures[1:]:
        speaker = rng.choice(people)
        if rng.random() < 0.6:
            # Only two people allow others, so that one of them often has no right to do so.
            host = rng.choice(people[:2])
            guest = rng.choice([each for each in people[1:] if each != host])
            yield host, 0, guest
            speaker = rng.choice((speaker, guest))
        yield speaker, figure, None


SCENARIOS: tuple[Scenario, ...] = (price, rule, authority)
