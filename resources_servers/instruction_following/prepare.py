r"""Generate rows that ask for a text about a topic and set constraints on its form. Every row can be solved.

python resources_servers/instruction_following/prepare.py --count 1000 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.instruction_following.families import IFBENCH
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


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None, ifbench: bool = True) -> Path:
    """Write `count` rows and return the output path. The same seed gives the same rows.

    ifbench: also use IFBench's constraints; after training on these rows, IFBench no longer measures generalisation
    """
    rows = split_rows(_rows(random.Random(seed), ifbench), split, count, key=itemgetter("prompt"))
    write_rows(output, ({**row, "id": number} for number, row in enumerate(rows)))
    return output


def _rows(rng: random.Random, ifbench: bool) -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield _solvable(rng, number, ifbench)


def _solvable(rng: random.Random, number: int, ifbench: bool) -> dict[str, Any]:
    """Return the first drawn row for which the oracle finds a text that follows the constraints."""
    for _ in range(MOST_ATTEMPTS):
        drawn = row(rng, number, ifbench)
        try:
            solve(drawn)
        except DataError:
            continue
        return drawn
    raise DataError(f"row {number}: no solvable constraints found in {MOST_ATTEMPTS} attempts. Try another --seed.")


def row(rng: random.Random, number: int, ifbench: bool = True) -> dict[str, Any]:
    """Draw a row with one constraint from `ALONE`, or with several constraints of different kinds from `TOGETHER`."""
    topic = rng.choice(FORMS).format(rng.choice(TOPICS))
    if rng.random() < SHARE_ALONE:
        wishes = [rng.choice(_allowed(ALONE, ifbench))]
    else:
        wishes = _of_different_kinds(rng, _allowed(TOGETHER, ifbench), rng.randint(1, MOST_TOGETHER))
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


def _allowed(wishes: Sequence[Wish], ifbench: bool) -> Sequence[Wish]:
    return wishes if ifbench else [wish for wish in wishes if wish.id not in IFBENCH]


def _of_different_kinds(rng: random.Random, wishes: Sequence[Wish], count: int) -> list[Wish]:
    chosen: list[Wish] = []
    for wish in rng.sample(wishes, len(wishes)):
        if len(chosen) < count and all(wish.kind != other.kind for other in chosen):
            chosen.append(wish)
    return chosen


if __name__ == "__main__":
    run_prepare(prepare)
