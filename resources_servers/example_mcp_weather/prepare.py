"""Generate rows: questions about the weather in a city.

python resources_servers/example_mcp_weather/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Look the weather up with your tool, then tell the sky and the temperature as it says them."
CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
NAMES = tuple(row["given_name"] for row in shared_rows("names.jsonl"))
QUESTIONS = (
    "What is the weather in {city} today?",
    "I am off to {city}. What will I find there?",
    "How is it outside in {city} just now?",
    "My aunt lives in {city}. What sort of day does she have?",
    "Describe today's weather for the newsletter of {city} in one sentence.",
    "{name} lands in {city} in an hour. What should I say about the weather?",
    "{name} and {other} walk through {city} today. What is the sky like, and how warm is it?",
    "{name} hangs out the washing in {city}. Is that wise today?",
    "Write {name} a line about the weather in {city}, where the family meets today.",
    "{name} runs a race in {city} today, and {other} watches. How is the weather?",
)


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows."""
    write_rows(output, split_rows(_rows(random.Random(f"weather over mcp {seed}")), split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        city = rng.choice(CITIES)
        name, other = rng.sample(NAMES, 2)
        question = rng.choice(QUESTIONS).format(city=city, name=name, other=other)
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
        yield {"responses_create_params": {"input": messages}, "verifier_metadata": {"expected_city": city}}


if __name__ == "__main__":
    run_prepare(prepare)
