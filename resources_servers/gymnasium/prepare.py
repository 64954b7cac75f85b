"""Generate rows with seeded games of Gymnasium's small environments.

python resources_servers/gymnasium/prepare.py --env-id Taxi-v4 --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import Any

from nemo_gym import DataError, EnvironmentFailed, InvalidTask, Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.gymnasium.games import known
from resources_servers.gymnasium.oracle import full_reward
from resources_servers.gymnasium.play import Play

ANSWER = "Answer with one action a turn, in <answer></answer>, such as <answer>{action}</answer>."
LAKE_SIZE = 5


def prepare(
    output: Path, env_id: str = "FrozenLake-v1", count: int = 100, seed: int = 0, split: Split | None = None
) -> Path:
    """Write `count` rows with ascending seeds and return their path.

    env_id: the Gymnasium environment
    seed: the first seed

    Each FrozenLake seed gets its own map. Blackjack hands that cannot be won are skipped.
    Raises `DataError` for an environment whose best games cannot be computed.
    """
    if known(env_id) is None:
        raise DataError(
            f"--env-id: the best game of '{env_id}' is not known. Write rows for this environment by hand."
        )
    try:
        with closing(Play(env_id, {})) as play:
            write_rows(output, split_rows(_rows(env_id, seed), split, count, key=partial(_task, play)))
    except (EnvironmentFailed, InvalidTask) as error:
        raise DataError(str(error)) from error
    return output


def _rows(env_id: str, seed: int) -> Iterator[dict[str, Any]]:
    game = known(env_id)
    assert game is not None
    for number in numbers(seed):
        instruction = f"{game.rules} {ANSWER.format(action=game.actions[0])}"
        row = {
            "responses_create_params": {"input": [{"role": "system", "content": instruction}]},
            "env_id": env_id,
            "env_kwargs": _lake(number) if env_id.startswith("FrozenLake") else {},
            "seed": number,
            "unreadable_reward": game.unreadable_reward,
        }
        if not env_id.startswith("Blackjack") or full_reward(row) > 0:
            yield row


def _task(play: Play, row: dict[str, Any]) -> object:
    """Return a key that identifies a game: FrozenLake's map, Blackjack's seed, or the first observation."""
    if "desc" in row["env_kwargs"]:
        return row["env_kwargs"]["desc"]
    if row["env_id"].startswith("Blackjack"):
        return row["seed"]
    return play.reset(row["seed"])


def _lake(seed: int) -> dict[str, Any]:
    try:
        # Import lazily, because the package is an optional extra.
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map
    except ImportError as error:
        raise EnvironmentFailed("gymnasium is not installed: pip install 'nemo-gym[gymnasium]'") from error
    return {"desc": list(generate_random_map(size=LAKE_SIZE, seed=seed)), "is_slippery": False}


if __name__ == "__main__":
    run_prepare(prepare)
