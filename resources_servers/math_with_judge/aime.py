"""Rows of AIME problems, whose answers are whole numbers from 0 to 999."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import JsonObject

LARGEST_ANSWER = 999


def aime_rows(path: Path, *, id_column: str, answer: object) -> Iterator[JsonObject]:
    """Yield a row per problem of a table with the columns `problem` and `answer`. `id_column` names the id column."""
    for number, problem in enumerate(read_table(path, {id_column: int, "problem": str, "answer": answer}), start=1):
        yield {
            "question": problem["problem"].strip(),
            "expected_answer": _whole_number(str(problem["answer"]).strip(), f"{path}: row {number}"),
            "metadata": {"id": problem[id_column]},
        }


def _whole_number(answer: str, where: str) -> str:
    if not (answer.isascii() and answer.isdecimal() and int(answer) <= LARGEST_ANSWER):
        raise DataError(
            f"{where}: column 'answer': '{answer}' is not a whole number from 0 to {LARGEST_ANSWER}. "
            "Fetch another revision."
        )
    return str(int(answer))
