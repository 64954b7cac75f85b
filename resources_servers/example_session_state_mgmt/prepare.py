"""Make rows: a counter, and the number that it is to be brought to.

python resources_servers/example_session_state_mgmt/prepare.py --count 100 --output <rows.jsonl>
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

INSTRUCTION = "You look after a counter with two tools. It may also be decreased, by adding a negative number."
NUMBERS = range(-20, 21)


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows.

    No counter stands where it should from the beginning.
    """
    write_rows(output, _rows(count, random.Random(f"counters {seed}")))
    return output


def _rows(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        initial, expected = rng.sample(NUMBERS, 2)
        task = f"Bring the counter to {expected}, then tell me its value."
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
        yield {
            "responses_create_params": {"input": messages},
            "initial_count": initial,
            "expected_count": expected,
        }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the example_session_state_mgmt environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
