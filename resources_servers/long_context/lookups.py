"""Questions whose answer is in one passage, a few passages, or a chain of passages of the archive."""

from __future__ import annotations

import random
from itertools import pairwise

from resources_servers.long_context.facts import (
    ATTRIBUTES,
    CITIES,
    LETTERS,
    PEOPLE,
    a_box,
    a_dial,
    a_file_key,
    a_number,
    a_thing,
    an_occasion,
    filed,
    link,
    reading,
    setting,
    wish,
)
from resources_servers.long_context.tasks import NUMBER, Task, distinct, keys_of, listed, scatter

ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth",
)  # fmt: skip
DIGITS = "0123456789"


def one_needle(rng: random.Random, level: int) -> Task:
    """Ask for one attribute of a thing in a city. Distracting facts differ in the thing, the city or the attribute."""
    attribute, other_attribute = rng.sample(ATTRIBUTES, 2)
    thing, other_thing = distinct(lambda: a_thing(rng), 2)
    city, other_city = rng.sample(CITIES, 2)
    value, *others = distinct(lambda: a_number(rng), 4)
    fact = reading(thing, city, attribute, value)
    distracting = [
        reading(thing, other_city, attribute, others[0]),
        reading(other_thing, city, attribute, others[1]),
        reading(thing, city, other_attribute, others[2]),
    ]
    needles = scatter(rng, [fact], distracting=distracting)
    question = f"What is the {attribute} of the {thing} in {city}?"
    return Task(question, value, "number", NUMBER, needles, keys_of(needles), others)


def many_needles(rng: random.Random, level: int) -> Task:
    """Ask for the same attribute of several things."""
    attribute = rng.choice(ATTRIBUTES)
    count = rng.randint(3, min(3 + level, 10))
    places = distinct(lambda: (a_thing(rng), rng.choice(CITIES)), count)
    values = distinct(lambda: a_number(rng), count)
    facts = [reading(*place, attribute, value) for place, value in zip(places, values, strict=True)]
    needles = scatter(rng, facts)
    things = listed([f"the {thing} in {city}" for thing, city in places])
    question = f"What are the {attribute}s of these, in this order: {things}?"
    form = "numbers, in digits and without a thousands separator, separated by commas"
    return Task(question, values, "list", form, needles, keys_of(needles))


def similar_keys(rng: random.Random, level: int) -> Task:
    """Ask for the box of a file. The keys of the other files differ from the file's key in one character."""
    key = a_file_key(rng)
    others = distinct(lambda: _one_character_off(rng, key), 4 + 2 * level)
    box, *wrong = distinct(lambda: a_box(rng), 1 + len(others))
    distracting = [filed(other, elsewhere) for other, elsewhere in zip(others, wrong, strict=True)]
    needles = scatter(rng, [filed(key, box)], distracting=distracting)
    return Task(f"In which box is file {key}?", box, "text", "box, such as B-100", needles, keys_of(needles), wrong)


def _one_character_off(rng: random.Random, key: str) -> str:
    place = rng.choice([place for place, character in enumerate(key) if character != "-"])
    allowed = (DIGITS[1:] if key[place - 1] == "-" else DIGITS) if key[place].isdigit() else LETTERS
    return key[:place] + rng.choice(allowed.replace(key[place], "")) + key[place + 1 :]


def variable_chain(rng: random.Random, level: int) -> Task:
    """Ask for the setting of the first dial of a chain. Each dial has the same setting as the next one."""
    length = rng.randint(2, 3 + level // 2)
    dials = distinct(lambda: a_dial(rng), 2 * (length + 1))
    values = distinct(lambda: a_number(rng), 2)
    chains = [dials[: length + 1], dials[length + 1 :]]
    facts, distracting = [
        [*(link(dial, source) for dial, source in pairwise(chain)), setting(chain[-1], value)]
        for chain, value in zip(chains, values, strict=True)
    ]
    needles = scatter(rng, facts, distracting=distracting)
    question = f"A dial that follows another dial has the same setting. What is dial {dials[0]} set to?"
    return Task(question, values[0], "number", NUMBER, needles, keys_of(needles), values[1:])


def nth_answer(rng: random.Random, level: int) -> Task:
    """Ask for the n-th answer to the same question, in the order of the archive."""
    occasion, count = an_occasion(rng), rng.randint(3, min(5 + level, len(ORDINALS)))
    people, cities = rng.sample(PEOPLE, count), rng.sample(CITIES, count)
    asked = rng.randrange(count)
    answers = [wish(occasion, person, city) for person, city in zip(people, cities, strict=True)]
    needles = scatter(rng, answers)
    needles = [needle._replace(is_source=number == asked) for number, needle in enumerate(needles)]
    towns = [needle.fact.fields["city"] for needle in needles]
    question = (
        f"Several people said where they want to hold {occasion}. In the order of the archive, which town did the "
        f"{ORDINALS[asked]} of them name?"
    )
    others = [*towns[:asked], *towns[asked + 1 :]]
    return Task(question, towns[asked], "text", "town", needles, keys_of(needles), others)
