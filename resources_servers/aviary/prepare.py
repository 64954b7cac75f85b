"""Generate rows: numbered rounds of a museum game, or the questions of a GSM8K file.

python resources_servers/aviary/prepare.py --count 100 --output <rows.jsonl>
python resources_servers/aviary/prepare.py --gsm8k <gsm8k.jsonl> --output <rows.jsonl>
python resources_servers/aviary/prepare.py --fetch-gsm8k --split train --count 1000 --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as numbers
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, RolloutError, Split, convert_lines, run_prepare, split_rows
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import Line, write_rows
from resources_servers.aviary.gsm8k import final_answer
from resources_servers.aviary.remote import TaskServer

NIGHT_ROUND = (
    "You are the night watch of a museum. Some exhibits lie in the wrong room: bring each to its place. Use the "
    "tools; every door you go through drains your lamp, so plan the round."
)
WORD_PROBLEM = (
    "Solve the word problem. Calculate with the calculator, as often as you like, and submit the answer as a number."
)


MOST_TASKS = 100_000
GSM8K = GitHub("openai/grade-school-math", "grade_school_math/data/train.jsonl", revision="master")


class Gsm8kRow(BaseModel):
    """A GSM8K question and its worked solution, which ends with `####` and the final answer."""

    question: str
    answer: str


def prepare(
    output: Path,
    count: int = 100,
    seed: int = 0,
    gsm8k: Path | None = None,
    *,
    fetch_gsm8k: bool = False,
    skip_bad: bool = False,
    split: Split | None = None,
    address: str | None = None,
) -> Path:
    """Write rows of `count` museum rounds, of a GSM8K file, or of a task server, and return their path.

    seed: the number of the first museum round
    gsm8k: a GSM8K file (JSON Lines) to use instead of museum rounds; without `split`, all its lines are used
    address: the URL of an Aviary task server; `AVIARY_API_KEY` in the process environment is sent to it
    fetch_gsm8k: download GSM8K's training questions into `source/` next to the output, and use that file

    Raises `DataError` with file and line for a line without a question and an answer, and writes nothing. With
    `skip_bad`, such lines are reported and left out instead.
    """
    if address is not None:
        if split is not None:
            raise DataError("--split: an Aviary task server has no splits. Remove it.")
        write_rows(output, _remote(address, count))
        return output
    path = fetch(GSM8K, folder=output.parent / "source") if fetch_gsm8k else gsm8k
    if path is None:
        rows = split_rows(_night_rounds(seed), split, count, key=itemgetter("task_idx"))
    else:
        rows = _word_problems(path, skip_bad)
        rows = split_rows(rows, split, count, key=_question) if split else rows
    write_rows(output, rows)
    return output


def _remote(address: str, count: int) -> list[dict[str, Any]]:
    """Return a row for each task of a server, or `count` rows if it does not report their number."""
    server = TaskServer(address, os.environ.get("AVIARY_API_KEY"))
    try:
        # Use a thread, because this one may already run an event loop.
        with ThreadPoolExecutor(1) as pool:
            size = pool.submit(asyncio.run, server.info()).result().dataset_size
    except RolloutError as error:
        raise DataError(f"{error}. Check that the server runs, and that the address is right.") from error
    if size is not None and not 0 < size <= MOST_TASKS:
        raise DataError(f"the Aviary server at {address} reports {size} tasks. Expected 1 to {MOST_TASKS}.")
    return [{"responses_create_params": {"input": []}, "task_idx": number} for number in range(size or count)]


def _question(row: dict[str, Any]) -> object:
    return row["task"]["question"]


def _night_rounds(seed: int) -> Iterator[dict[str, Any]]:
    for task_idx in numbers(seed):
        yield {"responses_create_params": _asked(NIGHT_ROUND), "task_idx": task_idx}


def _word_problems(path: Path, skip_bad: bool) -> Iterator[dict[str, Any]]:
    rows = convert_lines(path, lambda line: {"task": _task(line, path)}, skip_bad=skip_bad)
    for task_idx, row in enumerate(rows):
        yield {"responses_create_params": _asked(WORD_PROBLEM), "task_idx": task_idx, **row}


def _task(line: Line, path: Path) -> dict[str, str]:
    try:
        row = Gsm8kRow.model_validate(line.row)
        final_answer(row.answer)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{path}:{line.number}: {field}: {problem['msg']}. Only GSM8K's rows can be read.") from error
    except ValueError as error:
        raise DataError(f"{path}:{line.number}: {error}.") from error
    return {"question": row.question.strip(), "answer": row.answer}


def _asked(instruction: str) -> dict[str, Any]:
    return {"input": [{"role": "system", "content": instruction}]}


if __name__ == "__main__":
    run_prepare(prepare)
