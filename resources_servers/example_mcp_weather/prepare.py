"""Make rows: questions about the weather in one city.

python resources_servers/example_mcp_weather/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import run_prepare, shared_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Look the weather up with your tool, then tell the sky and the temperature as it says them."
CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
QUESTIONS = (
    "What is the weather in {city} today?",
    "I am off to {city}. What will I find there?",
    "How is it outside in {city} just now?",
    "My aunt lives in {city}. What sort of day does she have?",
    "Describe today's weather for the newsletter of {city} in one sentence.",
)


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows."""
    write_rows(output, _rows(count, random.Random(f"weather over mcp {seed}")))
    return output


def _rows(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        city = rng.choice(CITIES)
        question = rng.choice(QUESTIONS).format(city=city)
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
        yield {"responses_create_params": {"input": messages}, "verifier_metadata": {"expected_city": city}}


if __name__ == "__main__":
    run_prepare(prepare)
