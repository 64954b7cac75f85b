"""Generate rows: questions that a single tool call answers.

python resources_servers/example_tool_call_multireward/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Answer the user with exactly one tool call, then tell the result in a sentence."
CITIES = tuple(row["city"] for row in shared_rows("cities.jsonl"))
WEATHER_QUESTIONS = (
    "How warm is it in {city}, in {unit}?",
    "What temperature does {city} have today? Give it in {unit}.",
    "I travel to {city} tomorrow and think in {unit}. How warm is it there?",
    "Find out how cold {city} is, in degrees {unit}.",
)
CURRENCIES = {"EUR": "euros", "USD": "US dollars", "JPY": "yen", "CHF": "Swiss francs"}
OBSTACLES = ("ferries", "highways", "tolls")


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows."""
    write_rows(output, split_rows(_rows(random.Random(f"tool calls {seed}")), split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for make in cycle((_weather, _money, _route)):
        yield make(rng)


def _row(question: str, name: str, **arguments: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
    return {
        "responses_create_params": {"input": messages},
        "expected_call": {"name": name, "arguments": arguments},
    }


def _weather(rng: random.Random) -> dict[str, Any]:
    city, unit = rng.choice(CITIES), rng.choice(("celsius", "fahrenheit"))
    question = rng.choice(WEATHER_QUESTIONS).format(city=city, unit=unit.capitalize())
    return _row(question, "get_weather", city=city, unit=unit)


def _money(rng: random.Random) -> dict[str, Any]:
    source, target = rng.sample(list(CURRENCIES), 2)
    amount = rng.randrange(5, 5000)
    question = f"What are {amount} {CURRENCIES[source]} in {CURRENCIES[target]}?"
    return _row(question, "convert_currency", amount=amount, source=source, target=target)


def _route(rng: random.Random) -> dict[str, Any]:
    start, destination = rng.sample(CITIES, 2)
    avoid = sorted(rng.sample(OBSTACLES, rng.randrange(3)))
    question = f"How do I get from {start} to {destination}"
    if not avoid:
        return _row(f"{question}?", "plan_route", start=start, destination=destination)
    question = f"{question} without {' and '.join(avoid)}? Name them in alphabetical order."
    return _row(question, "plan_route", start=start, destination=destination, avoid=avoid)


if __name__ == "__main__":
    run_prepare(prepare)
