"""Generate rows, each with words to put into alphabetical order.

python environments/my_environment/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

# Accents have no place in the alphabet on which everybody agrees.
CITIES = [row["city"] for row in shared_rows("cities.jsonl") if row["city"].isascii()]
FEWEST, MOST = 3, 8


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path; the same seed makes the same rows.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(seed))
    write_rows(output, split_rows(rows, split, count) if split else itertools.islice(rows, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        words = rng.sample(CITIES, rng.randint(FEWEST, MOST))
        if words == sorted(words):
            continue
        task = (
            f"Put these cities into alphabetical order: {', '.join(words)}.\n\n"
            "End with a line of the form 'Answer: …' that lists all of them, separated by commas."
        )
        yield {"responses_create_params": {"input": [{"role": "user", "content": task}]}, "words": words}


if __name__ == "__main__":
    run_prepare(prepare)
