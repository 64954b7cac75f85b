"""Generate rows: a counter's initial value and the number it must reach.

python resources_servers/example_session_state_mgmt/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "You look after a counter with two tools. It may also be decreased, by adding a negative number."
NUMBERS = range(-100, 101)


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows.

    The initial and the expected count always differ.
    """
    write_rows(output, split_rows(_rows(random.Random(f"counters {seed}")), split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        initial, expected = rng.sample(NUMBERS, 2)
        task = f"Bring the counter to {expected}, then tell me its value."
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
        yield {
            "responses_create_params": {"input": messages},
            "initial_count": initial,
            "expected_count": expected,
        }


if __name__ == "__main__":
    run_prepare(prepare)
