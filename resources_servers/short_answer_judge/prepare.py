r"""Generate rows with questions about the countries of towns and about calendar days.

python resources_servers/short_answer_judge/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Answer in a few words. If you do not know the answer, say so."
CITIES = shared_rows("cities.jsonl")
FIRST_DAY, LAST_DAY = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(f"short answers {seed}"))
    write_rows(output, split_rows(rows, split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for make in itertools.cycle(KINDS):
        question, answer = make(rng)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": f"{question}\n\n{INSTRUCTION}"}]},
            "question": question,
            "expected_answer": answer,
        }


def _weekday(rng: random.Random) -> tuple[str, str]:
    day = _day(rng)
    return f"On which day of the week is {_shown(day)}?", f"{day:%A}"


def _same_country(rng: random.Random) -> tuple[str, str]:
    one, *others = rng.sample(CITIES, 3)
    listed = sorted(each["city"] for each in (one, *others))
    question = f"Of the towns {', '.join(listed[:-1])} and {listed[-1]}, which one is in {one['country']}?"
    if any(each["country"] == one["country"] for each in others):
        return _same_country(rng)
    return question, one["city"]


def _days_between(rng: random.Random) -> tuple[str, str]:
    day = _day(rng)
    days = rng.randint(20, 400)
    later = day + datetime.timedelta(days=days)
    question = f"How many days are there from {_shown(day)} to {_shown(later)}, counting only one of the two?"
    return question, str(days)


def _day(rng: random.Random) -> datetime.date:
    return FIRST_DAY + datetime.timedelta(days=rng.randrange((LAST_DAY - FIRST_DAY).days))


def _shown(day: datetime.date) -> str:
    return f"{day.day} {day:%B %Y}"


KINDS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (_weekday, _same_country, _days_between)

if __name__ == "__main__":
    run_prepare(prepare)
