"""Make rows: a hidden number, and how many guesses it may take.

python resources_servers/my_environment/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import exit_code_of
from nemo_gym.jsonl import write_rows

INSTRUCTION = "You have one tool, guess_number. Stop when you have found the number."
FEWEST_GUESSES, MOST_GUESSES = 4, 10
"""With four guesses, who halves the numbers each time finds every one of them."""


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows."""
    write_rows(output, _rows(count, random.Random(seed)))
    return output


def _rows(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        guesses = rng.randint(FEWEST_GUESSES, MOST_GUESSES)
        task = f"I have hidden a number from 1 to 10. Find it with no more than {guesses} guesses."
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
        yield {
            "responses_create_params": {"input": messages},
            "hidden_number": rng.randint(1, 10),
            "max_guesses": guesses,
        }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows: a hidden number, and how many guesses it may take.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
