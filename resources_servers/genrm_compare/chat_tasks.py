"""Generate requests to a chat assistant, each with one good answer, for environments without a single solution."""

from __future__ import annotations

import random
from typing import NamedTuple

from nemo_gym import shared_rows

PERSONAS = shared_rows("personas.jsonl")
CITIES = [row["city"] for row in shared_rows("cities.jsonl")]
NAMES = [f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl")]
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Task(NamedTuple):
    """A request and a good answer to it."""

    kind: str
    request: str
    answer: str


class Event(NamedTuple):
    """An event to which neighbours are invited, its place, and an item to bring."""

    title: str
    place: str
    item: str


EVENTS = (
    Event("repair café", "the old fire station", "a broken lamp or radio"),
    Event("plant swap", "the courtyard of the library", "spare seedlings and empty pots"),
    Event("board game evening", "the community kitchen", "a favourite game and some snacks"),
    Event("spring cleaning", "the park by the river", "sturdy gloves and a bucket"),
    Event("storytelling night", "the school gymnasium", "a cushion and a warm blanket"),
    Event("bicycle workshop", "the garage behind the bakery", "a bicycle with worn brakes"),
    Event("soup festival", "the market hall", "a bowl and a large spoon"),
    Event("choir rehearsal", "the chapel on the hill", "a pencil and something to drink"),
)


class Topic(NamedTuple):
    """A topic to explain, notes about it, and an explanation that contains the notes."""

    name: str
    notes: str
    explanation: str


TOPICS = (
    Topic(
        "tides",
        "moon pulls ocean water; two bulges; earth turns below them; two high waters daily",
        "Tides come from the moon, because it pulls the water of the ocean towards itself. Two bulges form, one below "
        "the moon and one on the far side. The earth turns below them, so most coasts have high waters twice, daily.",
    ),
    Topic(
        "vaccines",
        "harmless piece of germ; immune system practises; memory cells remain; real germ recognized quickly",
        "Vaccines show the body a harmless piece of a germ, so that the immune system can train and practises without "
        "danger. Memory cells remain afterwards. If the real germ arrives, it is recognized and stopped quickly.",
    ),
    Topic(
        "inflation",
        "prices rise everywhere; same money buys less; savings shrink; central bank raises interest",
        "Inflation means that prices rise almost everywhere, and with the same money a family buys less than before. "
        "Your savings shrink, too. A central bank then often raises the interest, so that people spend less.",
    ),
    Topic(
        "fermentation",
        "yeast eats sugar; carbon dioxide bubbles; dough rises; flavour develops slowly",
        "In fermentation tiny yeast cells live in the food and each of them eats sugar. They give off carbon dioxide, "
        "and its bubbles are the reason why a dough rises. If it rests for a night, more flavour develops, slowly.",
    ),
    Topic(
        "rainbows",
        "sunlight enters raindrops; light bends; colours separate; observer between sun and rain",
        "Rainbows appear when sunlight enters many small raindrops. The light bends in each of them, and the colours "
        "separate because red turns less than violet. The observer has to be between the sun and the rain.",
    ),
    Topic(
        "compost",
        "kitchen scraps rot; bacteria need oxygen; heap becomes warm; dark soil after months",
        "Compost is what becomes of kitchen scraps when they rot in the right way. The bacteria need oxygen, so turn "
        "the heap now and then. It becomes warm, and after some months you have dark soil for the garden.",
    ),
)
ITEMS = ("desk lamp", "coffee grinder", "rucksack", "raincoat", "garden hose", "bookshelf", "tea kettle", "door mat")
TEAMS = ("allotment club", "theatre group", "parents' council", "football club", "photography circle", "village choir")
PURCHASES = ("projector", "trailer", "stage curtain", "printer", "marquee", "set of benches")


def announcement(rng: random.Random) -> Task:
    """Return a request for a notice about an event."""
    event, host, city = rng.choice(EVENTS), rng.choice(PERSONAS), rng.choice(CITIES)
    day, hour, fee = rng.choice(DAYS), rng.randint(9, 20), rng.randint(2, 15)
    request = (
        f"{host['name']} from {city}, {host['job']}, organises this event: {event.title}. When: {day}, {hour}:00. "
        f"Where: {event.place}. Bring: {event.item}. Fee: {fee} euros.\n\n"
        "Write a friendly notice of three to five sentences for the neighbours, with all of these facts."
    )
    answer = (
        f"Dear neighbours, {host['name']} organises a {event.title} in {city}, and you are invited. On {day} the "
        f"doors of {event.place} open for everyone at {hour}:00. If you can, bring {event.item}, because there is a "
        f"lot that we want to do. The fee is {fee} euros, and all of it pays for the room. Our host, {host['job']}, "
        "is happy to answer questions about the event."
    )
    return Task("announcement", request, answer)


def explanation(rng: random.Random) -> Task:
    """Return a request to explain something to a person."""
    topic, reader = rng.choice(TOPICS), rng.choice(PERSONAS)
    name, city = rng.choice(NAMES), rng.choice(CITIES)
    interest = rng.choice(reader["interests"])
    request = (
        f"Explain {topic.name} to {name} from {city}, {reader['age']}, {reader['job']} who likes {interest}. Notes: "
        f"{topic.notes}.\n\nUse easy words, and speak to the reader in full sentences."
    )
    answer = (
        f"Dear {name.split()[0]}, this is for you, for {reader['job']} in {city} who likes {interest}. "
        f"{topic.explanation} I hope that this makes it clear to you, and that you can now explain it to others."
    )
    return Task("explanation", request, answer)


def rewriting(rng: random.Random) -> Task:
    """Return a request to make a rude message polite."""
    writer, item, order = rng.choice(NAMES), rng.choice(ITEMS), rng.randint(10_000, 99_999)
    day, price, city = rng.choice(DAYS), rng.randint(15, 180), rng.choice(CITIES)
    request = (
        f'Rewrite this message politely and keep each fact:\n\n"Order {order}, {item}, not here! Promised for {day}. '
        f'Useless shop. Deliver to {city} immediately or refund {price} euros. {writer}"\n\nReturn only the message.'
    )
    answer = (
        f"Good morning, I am writing to you because of order {order}. The {item} was promised for {day}, but it is "
        f"still not here. Could you please deliver it to my address in {city}, or else refund the {price} euros that "
        f"I paid for it? Thank you for your help with this message. Kind regards from {writer}."
    )
    return Task("rewriting", request, answer)


def reply(rng: random.Random) -> Task:
    """Return a request to reply to an invitation."""
    host, guest = rng.sample(NAMES, 2)
    event, city = rng.choice(EVENTS), rng.choice(CITIES)
    day, other = rng.sample(DAYS, 2)
    hour, later = rng.randint(9, 14), rng.randint(15, 20)
    request = (
        f'{host} writes: "Shall we prepare the {event.title} in {city} on {day} at {hour}:00, in {event.place}?"\n\n'
        f"Write the reply of {guest}: accept, propose {other} at {later}:00 instead because of a dentist appointment, "
        f"and offer to bring {event.item}. Three to five sentences."
    )
    answer = (
        f"Dear {host}, I accept with pleasure, and it is kind of you to think of me for the {event.title}. On {day} "
        f"at {hour}:00 I have an appointment with the dentist. Could we prepare it on {other} instead, at {later}:00, "
        f"and also in {event.place} in {city}? I will bring {event.item} if you like my offer. With best wishes from "
        f"{guest}."
    )
    return Task("reply", request, answer)


def summary(rng: random.Random) -> Task:
    """Return a request to turn the notes of a meeting into sentences."""
    chair, treasurer = rng.sample(NAMES, 2)
    team, bought, city = rng.choice(TEAMS), rng.choice(PURCHASES), rng.choice(CITIES)
    present, cost, day = rng.randint(6, 40), rng.randint(120, 900), rng.choice(DAYS)
    request = (
        f"Notes of a meeting:\n- {team}, {city}, {present} members present\n- chair: {chair}\n- treasurer {treasurer}"
        f": {bought} costs {cost} euros\n- vote: purchase approved\n- next meeting: {day}\n\n"
        "Summarise these notes in three to five sentences, as an e-mail to the absent members."
    )
    answer = (
        f"Dear members, this is what you missed at the meeting of the {team} in {city}, with {present} of us present "
        f"and {chair} in the chair. Our treasurer, {treasurer}, explained that a {bought} costs {cost} euros. After a "
        f"short vote the purchase was approved. The next meeting is on {day}, and we hope that you can be there."
    )
    return Task("summary", request, answer)


KINDS = (announcement, explanation, rewriting, reply, summary)
