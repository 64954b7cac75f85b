"""Write rows with ascending seeds for a game, or convert the rows of a SkyRL dataset.

python resources_servers/textgames/prepare.py --library textarena --game Wordle-v0 --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as numbers
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, RolloutError, Split, run_prepare, split_rows
from nemo_gym.jsonl import JsonObject, read_rows, write_rows
from resources_servers.textgames.library import Library, LibraryName, opening_of

INSTRUCTION = (
    "You are player 0 of a text game. Each of your answers is one move, in the format that the game asks for. Your "
    "whole answer is passed to the game."
)
START_S = 120.0


def prepare(
    output: Path,
    library: LibraryName = "included",
    game: str = "guess_the_number",
    *,
    count: int = 100,
    seed: int = 0,
    split: Split | None = None,
    python: str | None = None,
) -> Path:
    """Write `count` rows and return their path.

    library: the library with the game
    game: the library's name of a game; for skyrl-gym, an environment and a JSON Lines file of its rows, `gsm8k:FILE`
    seed: the first seed
    python: the interpreter that has the library

    Raises `DataError` if the first row's game cannot be played.
    """
    if library == "skyrl_gym":
        if split is not None:
            raise DataError("--split: the rows of a file are not divided into splits. Remove it.")
        rows = list(_converted(*game.partition(":")[::2]))
    else:
        rows = list(split_rows(_seeded(game, seed), split, count, key=itemgetter("seed")))
    try:
        # Use a thread, because this one may already run an event loop.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _try(Library(library, python), rows[0])).result()
    except RolloutError as error:
        raise DataError(f"{error}.") from error
    write_rows(output, rows)
    return output


def _seeded(game: str, seed: int) -> Iterator[JsonObject]:
    asked = {"input": [{"role": "system", "content": INSTRUCTION}]}
    return ({"responses_create_params": asked, "game": game, "seed": number} for number in numbers(seed))


def _converted(game: str, path: str) -> Iterator[JsonObject]:
    """Convert the rows of a SkyRL dataset: everything but the prompt is for the environment."""
    if not path:
        raise DataError(
            f"skyrl-gym has no tasks for '{game}'. Name a JSON Lines file of a SkyRL dataset: {game}:FILE."
        )
    number = 0
    for number, row in enumerate(read_rows(Path(path)), start=1):
        prompt, extras = row.pop("prompt", None), row
        if not isinstance(prompt, list) or not prompt:
            raise DataError(f"{path}:{number}: `prompt` is not a list of messages. Use the rows of a SkyRL dataset.")
        name = str(extras.pop("env_class", None) or game)
        yield {"responses_create_params": {"input": prompt}, "game": name, "seed": number - 1, "extras": extras}
    if not number:
        raise DataError(f"{path}: the file has no rows.")


async def _try(library: Library, row: dict[str, Any]) -> None:
    """Begin the game of a row, to find out before the run whether that is possible."""
    try:
        seat = await library.seat(row["game"])
        try:
            await seat.begin(opening_of(row), START_S)
        finally:
            await seat.close()
    finally:
        await library.close()


if __name__ == "__main__":
    run_prepare(prepare)
