r"""Generate rows: a topic, and constraints on the answer's form that one text can follow.

python resources_servers/instruction_following/prepare.py --count 1000 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import DataError, run_prepare
from nemo_gym.jsonl import write_rows
from resources_servers.instruction_following.oracle import solve
from resources_servers.instruction_following.wishes import ALONE, TOGETHER, Wish, shown

TOPICS = (
    "a walk along a river", "a visit to a small museum", "the first day of a new job", "how bread is baked",
    "a neighbour who keeps bees", "why leaves turn yellow", "a letter that arrived late", "the best seat on a train",
    "what to pack for a week by the sea", "a town without cars", "learning to swim", "an argument about a tree",
    "the history of the umbrella", "a recipe that went wrong", "the sound of rain", "a school play",
)  # fmt: skip
FORMS = ("Write a short text about {}.", "Tell me about {}.", "Write a few sentences about {}.", "Describe {}.")
MOST_TOGETHER = 4
SHARE_ALONE = 0.3
MOST_ATTEMPTS = 100


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and return the output path. The same seed gives the same rows."""
    if count < 1:
        raise DataError(f"--count {count}: must be at least 1.")
    write_rows(output, _rows(count, random.Random(seed)))
    return output


def _rows(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield _solvable(rng, number)


def _solvable(rng: random.Random, number: int) -> dict[str, Any]:
    """Draw a row until the oracle finds a text that follows its constraints."""
    for _ in range(MOST_ATTEMPTS):
        drawn = row(rng, number)
        try:
            solve(drawn)
        except DataError:
            continue
        return drawn
    raise DataError(f"row {number}: no solvable constraints found in {MOST_ATTEMPTS} attempts. Try another --seed.")


def row(rng: random.Random, number: int) -> dict[str, Any]:
    """Draw a row with one constraint that shapes every word, or with several others of different kinds."""
    topic = rng.choice(FORMS).format(rng.choice(TOPICS))
    if rng.random() < SHARE_ALONE:
        wishes = [rng.choice(ALONE)]
    else:
        wishes = _of_different_kinds(rng, rng.randint(1, MOST_TOGETHER))
    arguments = [wish.draw(rng, topic) for wish in wishes]
    sentences = [wish.ask.format(**shown(each)) for wish, each in zip(wishes, arguments, strict=True)]
    prompt = " ".join([topic, *sentences])
    return {
        "id": number,
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "instruction_id_list": [wish.id for wish in wishes],
        "prompt": prompt,
        "kwargs": arguments,
    }


def _of_different_kinds(rng: random.Random, count: int) -> list[Wish]:
    chosen: list[Wish] = []
    for wish in rng.sample(TOGETHER, len(TOGETHER)):
        if len(chosen) < count and all(wish.kind != other.kind for other in chosen):
            chosen.append(wish)
    return chosen


if __name__ == "__main__":
    run_prepare(prepare)
