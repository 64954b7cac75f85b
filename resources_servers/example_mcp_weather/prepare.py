"""Make rows: a question that the weather in one city answers.

python resources_servers/example_mcp_weather/prepare.py --count 100 --output <rows.jsonl>
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

INSTRUCTION = "Look the weather up with your tool, then tell the sky and the temperature as it says them."
CITIES = (
    "Accra", "Bergen", "Cusco", "Dakar", "Graz", "Hanoi", "Izmir", "Kyoto", "La Paz", "Lisbon", "Nairobi", "Oslo",
    "Perth", "Prague", "Quito", "São Paulo", "Tromsø", "Tunis", "Xi'an", "Zürich",
)  # fmt: skip
QUESTIONS = (
    "What is the weather in {city} today?",
    "I am off to {city}. What will I find there?",
    "How is it outside in {city} just now?",
    "My aunt lives in {city}. What sort of day does she have?",
    "Describe today's weather for the newsletter of {city} in one sentence.",
)


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows."""
    write_rows(output, _rows(count, random.Random(f"weather over mcp {seed}")))
    return output


def _rows(count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        city = rng.choice(CITIES)
        question = rng.choice(QUESTIONS).format(city=city)
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
        yield {"responses_create_params": {"input": messages}, "verifier_metadata": {"expected_city": city}}


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the example_mcp_weather environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
