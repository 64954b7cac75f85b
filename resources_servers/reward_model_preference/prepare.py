r"""Generate rows with requests, such as to explain or to summarise. Each has a better and a worse answer.

python resources_servers/reward_model_preference/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.genrm_compare.chat_tasks import KINDS, Task


def prepare(output: Path, count: int = 500, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path.

    split: only rows of this split; the two splits have no row in common
    """
    rows = _rows(random.Random(f"reward model preference {seed}"))
    write_rows(output, split_rows(rows, split, count))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for make in itertools.cycle(KINDS):
        task = make(rng)
        yield _row(task, rng.choice(FLAWS)(task, rng))


def _row(task: Task, rejected: str) -> dict[str, Any]:
    """Return the row of a task, with the task's answer as the better one and `rejected` as the worse one."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": task.request}]},
        "chosen": task.answer,
        "rejected": rejected,
        "subset": task.kind,
    }


def _too_short(task: Task, rng: random.Random) -> str:
    return rng.choice(("Sure, I can help with that.", "Here you go.", "Sorry, I have no time for this today."))


def _echo(task: Task, rng: random.Random) -> str:
    return rng.choice((f"You asked me this: {task.request}", task.request))


def _another_task(task: Task, rng: random.Random) -> str:
    others = [make for make in KINDS if make.__name__ != task.kind]
    return rng.choice(others)(rng).answer


def _repetition(task: Task, rng: random.Random) -> str:
    first = task.answer.partition(". ")[0]
    return " ".join([f"{first}."] * rng.randint(4, 6))


FLAWS: tuple[Callable[[Task, random.Random], str], ...] = (_too_short, _echo, _another_task, _repetition)

if __name__ == "__main__":
    run_prepare(prepare)
