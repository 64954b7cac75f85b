"""Make rows: hands of blackjack, each from a seed.

python resources_servers/blackjack/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any

from nemo_gym import exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.blackjack.game import Outcome, best_play

INSTRUCTION = (
    "You play one hand of blackjack. Say hit to take another card, or stand to take no more. The dealer then draws up "
    "to 17. Closest to 21 wins, more than 21 loses. Court cards count 10, an ace 1 or 11. Put your decision into "
    "<answer></answer>: <answer>hit</answer> or <answer>stand</answer>."
)


def prepare(output: Path, count: int = 100, seed: int = 0, all_deals: bool = False) -> Path:
    """Write `count` rows whose seeds begin at `seed`, and answer where they are.

    Only hands that some play wins, unless `all_deals`.
    """
    write_rows(output, islice(_rows(seed, all_deals), count))
    return output


def _rows(seed: int, all_deals: bool) -> Iterator[dict[str, Any]]:
    for number in numbers(seed):
        if all_deals or best_play(number)[1] is Outcome.WON:
            yield {
                "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
                "seed": number,
            }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the blackjack environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--all-deals", action="store_true", help="also hands that no play wins")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed, asked.all_deals)


if __name__ == "__main__":
    sys.exit(main())
