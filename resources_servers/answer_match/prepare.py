r"""Generate rows: small tasks about towns, invoices, flights, tickets and greetings, one kind per grader.

python resources_servers/answer_match/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "End with a line of the form 'Answer: …' that holds nothing but the answer."
CITIES = shared_rows("cities.jsonl")
NAMES = [f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl")]
GOODS = ("lamp", "kettle", "rucksack", "bicycle bell", "notebook", "raincoat", "tea pot", "door mat", "watering can")
DEPARTMENTS = {
    "billing": ("I was charged twice for {order}", "The invoice for {order} names the wrong company"),
    "delivery": (
        "{order} should have arrived last week",
        "The parcel with {order} went to my neighbour's old address",
    ),
    "returns": ("I would like to send {order} back, it is too small", "Where do I get a label to return {order}?"),
    "technical": ("The app closes as soon as I open {order}", "I cannot log in to look at {order}"),
}


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(f"answer match {seed}"))
    write_rows(output, split_rows(rows, split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for make in itertools.cycle(KINDS):
        row = make(rng)
        text = row["question"] if row["grader"] == "contains" else f"{row['question']}\n\n{INSTRUCTION}"
        yield {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **row}


def _country(rng: random.Random) -> dict[str, Any]:
    cities = rng.sample(CITIES, 3)
    place = rng.choice(("first", "second", "third"))
    city = cities[("first", "second", "third").index(place)]
    listed = ", ".join(each["city"] for each in cities)
    question = f"In which country is the {place} of these towns: {listed}?"
    return {"question": question, "expected_answer": city["country"], "grader": "exact"}


def _invoice(rng: random.Random) -> dict[str, Any]:
    cents, pieces, shipping = rng.randrange(150, 9_000, 5), rng.randint(2, 12), rng.choice((0, 390, 490, 990))
    total = cents * pieces + shipping
    sent = f"Shipping costs {shipping / 100:.2f} euros." if shipping else "Shipping is free."
    question = (
        f"{rng.choice(NAMES)} orders {pieces} pieces of a {rng.choice(GOODS)} at {cents / 100:.2f} euros each. {sent} "
        "What is the total in euros?"
    )
    return {"question": question, "expected_answer": f"{total / 100:.2f}", "grader": "number"}


def _ticket(rng: random.Random) -> dict[str, Any]:
    department = rng.choice(list(DEPARTMENTS))
    order = f"order {rng.randint(10_000, 99_999)} (a {rng.choice(GOODS)})"
    ticket = rng.choice(DEPARTMENTS[department]).format(order=order)
    options = rng.sample(list(DEPARTMENTS), len(DEPARTMENTS))
    question = f'{rng.choice(NAMES)} writes: "{ticket}". Who should answer: {", ".join(options)}?'
    return {"question": question, "expected_answer": department, "grader": "choice", "options": options}


def _arrival(rng: random.Random) -> dict[str, Any]:
    one, other = rng.sample(CITIES, 2)
    leaves, takes = rng.randrange(5 * 60, 16 * 60, 5), rng.randrange(35, 420, 5)
    hour, minute = divmod(leaves + takes, 60)
    at = f"{leaves // 60}:{leaves % 60:02}"
    question = (
        f"A flight leaves {one['city']} at {at} and takes {takes} minutes to {other['city']}. When does it arrive? "
        "Both use the same time zone."
    )
    half = rf"{(hour - 1) % 12 + 1}:{minute:02}\s*{'p' if hour >= 12 else 'a'}\.?m\.?"
    pattern = rf"0?{hour}[:.]{minute:02}(\s*(h|hrs|o'clock))?|{half}"
    return {
        "question": question,
        "expected_answer": pattern,
        "grader": "regex",
        "example_match": f"{hour}:{minute:02}",
    }


def _greeting(rng: random.Random) -> dict[str, Any]:
    name, city = rng.choice(NAMES), rng.choice(CITIES)["city"]
    question = f"Write one friendly sentence that welcomes {name} to {city}. Use the full name."
    return {"question": question, "expected_answer": name, "grader": "contains"}


KINDS: tuple[Callable[[random.Random], dict[str, Any]], ...] = (_country, _invoice, _ticket, _arrival, _greeting)

if __name__ == "__main__":
    run_prepare(prepare)
