"""Rows of AIME problems, whose answers are whole numbers from 0 to 999."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, convert_table
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject

LARGEST_ANSWER = 999


def aime_rows(path: Path, *, id_column: str, answer: object, skip_bad: bool = False) -> Iterator[JsonObject]:
    """Yield a row per problem of a table with the columns `problem` and `answer`. `id_column` names the id column."""

    def row_of(row: TableRow) -> JsonObject:
        return {
            "question": row.fields["problem"].strip(),
            "expected_answer": _whole_number(str(row.fields["answer"]).strip(), row.place),
            "metadata": {"id": row.fields[id_column]},
        }

    columns = {id_column: int, "problem": str, "answer": answer}
    return convert_table(path, columns, row_of, skip_bad=skip_bad)


def _whole_number(answer: str, where: str) -> str:
    if not (answer.isascii() and answer.isdecimal() and int(answer) <= LARGEST_ANSWER):
        raise DataError(
            f"{where}: column 'answer': '{answer}' is not a whole number from 0 to {LARGEST_ANSWER}. "
            "Fetch another revision."
        )
    return str(int(answer))
