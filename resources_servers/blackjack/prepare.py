"""Generate rows: seeded hands of blackjack.

python resources_servers/blackjack/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as numbers
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.blackjack.game import Outcome, best_play

INSTRUCTION = (
    "You play one hand of blackjack. Say hit to take another card, or stand to take no more. The dealer then draws up "
    "to 17. Closest to 21 wins, more than 21 loses. Court cards count 10, an ace 1 or 11. Put your decision into "
    "<answer></answer>: <answer>hit</answer> or <answer>stand</answer>."
)


def prepare(
    output: Path, count: int = 100, seed: int = 0, all_deals: bool = False, split: Split | None = None
) -> Path:
    """Write `count` rows with ascending seeds and return their path.

    seed: the first seed
    all_deals: include hands that cannot be won
    """
    write_rows(output, split_rows(_rows(seed, all_deals), split, count, key=itemgetter("seed")))
    return output


def _rows(seed: int, all_deals: bool) -> Iterator[dict[str, Any]]:
    for number in numbers(seed):
        if all_deals or best_play(number)[1] is Outcome.WON:
            yield {
                "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
                "seed": number,
            }


if __name__ == "__main__":
    run_prepare(prepare)
