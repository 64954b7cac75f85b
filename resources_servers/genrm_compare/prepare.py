r"""Generate rows: requests to write, explain, rewrite, reply and summarise, each with a good answer.

python resources_servers/genrm_compare/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.genrm_compare.chat_tasks import KINDS


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(f"genrm compare {seed}"))
    write_rows(output, split_rows(rows, split, count))
    return output


def _rows(rng: random.Random) -> Iterator[JsonObject]:
    for make in itertools.cycle(KINDS):
        task = make(rng)
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": task.request}]},
            "good_answer": task.answer,
            "subset": task.kind,
        }


if __name__ == "__main__":
    run_prepare(prepare)
