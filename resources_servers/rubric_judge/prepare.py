r"""Generate rows with messages from customers to a shop, each with a reference reply.

python resources_servers/rubric_judge/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "You work for the support team of an online shop. Write the reply to this message, and nothing else."
NAMES = [f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl")]
GOODS = (
    "desk lamp",
    "kettle",
    "rucksack",
    "bicycle bell",
    "raincoat",
    "tea pot",
    "door mat",
    "watering can",
    "blanket",
)
OPENINGS = ("Hello,", "Good morning,", "Hi there,", "To the support team,", "")
MOODS = ("", "I am rather annoyed by now.", "No hurry from my side.", "Please help, it is a birthday present.")


class Case(NamedTuple):
    """Templates for a customer's problem and the shop's answer."""

    problem: str
    answer: str


CASES = (
    Case(
        "My {good} (order {order}) arrived with a crack.", "we send a new {good} today, and you may keep the old one"
    ),
    Case("I was charged twice for order {order}, the {good}.", "we cancel the second charge, which takes {days} days"),
    Case("Where is my {good}? I ordered it {days} days ago, order {order}.", "we ask the carrier and write tomorrow"),
    Case(
        "The {good} of order {order} does not fit. Can I return it?", "you find a label for the return in your account"
    ),
    Case("I ordered a {good} (order {order}), but got a {other}.", "we send the {good} today and collect the {other}"),
    Case(
        "Please change the address of order {order}, the {good}.", "please send us the new address, and we change it"
    ),
)


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(f"rubric judge {seed}"))
    write_rows(output, split_rows(rows, split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for case in itertools.cycle(CASES):
        good, other = rng.sample(GOODS, 2)
        order, name = str(rng.randint(10_000, 99_999)), rng.choice(NAMES)
        facts = {"good": good, "other": other, "order": order, "days": rng.randint(3, 9)}
        message = (rng.choice(OPENINGS), case.problem.format(**facts), rng.choice(MOODS), name)
        question = "\n".join(filter(None, message))
        answer = f"Dear {name},\nthank you for your message. About your order {order}: {case.answer.format(**facts)}."
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": f"{INSTRUCTION}\n\n{question}"}]},
            "question": question,
            "expected_answer": f"{answer}\nKind regards\nYour support team",
        }


if __name__ == "__main__":
    run_prepare(prepare)
