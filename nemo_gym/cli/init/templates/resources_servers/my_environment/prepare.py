"""Generate rows, each with a hidden number and a limit on the guesses.

python resources_servers/my_environment/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "You have one tool, guess_number. Stop when you have found the number."
FEWEST_GUESSES, MOST_GUESSES = 4, 10
"""Four guesses are enough for binary search."""


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path; the same seed makes the same rows.

    With a split the rows are distinct, and no row of one split is in the other.
    """
    write_rows(output, split_rows(_rows(random.Random(seed)), split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        guesses = rng.randint(FEWEST_GUESSES, MOST_GUESSES)
        task = f"I have hidden a number from 1 to 10. Find it with no more than {guesses} guesses."
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
        yield {
            "responses_create_params": {"input": messages},
            "hidden_number": rng.randint(1, 10),
            "max_guesses": guesses,
        }


if __name__ == "__main__":
    run_prepare(prepare)
