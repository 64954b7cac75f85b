"""Generate rows: questions about the weather in a city.

python resources_servers/example_single_tool_call/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "You are a helpful assistant. Use the tool when it helps."
CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
QUESTIONS = (
    "What is the weather in {city} today?",
    "Do I need a coat in {city} this evening?",
    "I am about to leave for {city}. How is the weather there?",
    "Compare today's weather in {city} and in {other}.",
    "Is it a good day for a walk in {city}?",
    "Where is it warmer now, in {city} or in {other}?",
)


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows."""
    write_rows(output, split_rows(_rows(random.Random(f"weather {seed}")), split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        city, other = rng.sample(CITIES, 2)
        question = rng.choice(QUESTIONS).format(city=city, other=other)
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
        yield {"responses_create_params": {"input": messages}}


if __name__ == "__main__":
    run_prepare(prepare)
