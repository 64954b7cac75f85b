"""Make rows: a question that one call of one tool answers.

python resources_servers/example_tool_call_multireward/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from nemo_gym import exit_code_of
from nemo_gym.jsonl import write_rows

INSTRUCTION = "Answer the user with exactly one tool call, then tell the result in a sentence."
CITIES = ("Lisbon", "Nairobi", "Quito", "Hanoi", "Oslo", "Perth", "Kyoto", "Tunis")
CURRENCIES = {"EUR": "euros", "USD": "US dollars", "JPY": "yen", "CHF": "Swiss francs"}
OBSTACLES = ("ferries", "highways", "tolls")


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows."""
    rng = random.Random(f"tool calls {seed}")
    makers = (_weather, _money, _route)
    write_rows(output, (makers[number % len(makers)](rng) for number in range(count)))
    return output


def _row(question: str, name: str, **arguments: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
    return {
        "responses_create_params": {"input": messages},
        "expected_call": {"name": name, "arguments": arguments},
    }


def _weather(rng: random.Random) -> dict[str, Any]:
    city, unit = rng.choice(CITIES), rng.choice(("celsius", "fahrenheit"))
    return _row(f"How warm is it in {city}, in {unit.capitalize()}?", "get_weather", city=city, unit=unit)


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


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the example_tool_call_multireward environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
