r"""Generate rows of this environment from public questions.

python resources_servers/mcqa/prepare.py --split train --output <rows.jsonl>            fetches MMLU
python resources_servers/mcqa/prepare.py --input <agieval.jsonl> --output <rows.jsonl>  converts AGIEval
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, Split, UsageError, convert_lines, run_prepare
from nemo_gym.jsonl import JsonObject, Line, write_rows
from resources_servers.mcqa.agieval import agieval_row
from resources_servers.mcqa.grading import DEFAULT_MODE, GradingMode
from resources_servers.mcqa.mmlu import mmlu_rows

BOXED_INSTRUCTION = r"Put the letter of the right option, and nothing else, into \boxed{}."
ANSWER_INSTRUCTION = "End with a line of the form 'Answer: X', where X is the letter of the right option."
INSTRUCTIONS: dict[GradingMode, str] = {
    "strict_single_letter_boxed": BOXED_INSTRUCTION,
    "lenient_boxed": BOXED_INSTRUCTION,
    "lenient_answer_colon": ANSWER_INSTRUCTION,
    "lenient_answer_colon_md": ANSWER_INSTRUCTION,
}


def prepare(
    *,
    output: Path,
    input: Path | None = None,
    split: Split | None = None,
    count: int | None = None,
    seed: int = 0,
    grading_mode: GradingMode = DEFAULT_MODE,
    skip_bad: bool = False,
) -> Path:
    """Write one row per question, and return the output path.

    input: a multiple-choice file of AGIEval (JSON Lines)
    split: fetch MMLU's questions for this split, instead of reading an input
    count: number of MMLU's questions, drawn at random; by default all
    grading_mode: how the answer letter must be written

    Raise `DataError` with file and line for an AGIEval question without lettered options or without one correct
    letter; then nothing is written. `skip_bad` leaves out and reports such questions.
    """
    if (input is None) == (split is None):
        raise UsageError("either --input or --split is required: a file of AGIEval, or a split of MMLU to fetch")
    if split is not None:
        rows = mmlu_rows(split, output.parent / "source", grading_mode, skip_bad=skip_bad)
        write_rows(output, _sample(list(rows), split, count, seed))
    elif input is not None:
        write_rows(output, convert_lines(input, lambda line: _agieval(line, input, grading_mode), skip_bad=skip_bad))
    return output


def _sample(rows: list[JsonObject], split: Split, count: int | None, seed: int) -> Iterator[JsonObject]:
    if count is not None and count > len(rows):
        raise DataError(f"count: {count} rows are asked for, but split '{split}' has {len(rows)}. Ask for fewer.")
    # Shuffle the questions, because they are sorted by their origin.
    random.Random(f"mcqa {seed}").shuffle(rows)
    return map(_with_prompt, rows[:count])


def _agieval(line: Line, path: Path, grading_mode: GradingMode) -> JsonObject:
    row = _with_prompt(agieval_row(line, path, grading_mode))
    return {**row, "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode()))}


def _with_prompt(row: JsonObject) -> JsonObject:
    parts = [row.pop("question"), row.pop("options_text"), INSTRUCTIONS[row["grading_mode"]]]
    return {"responses_create_params": {"input": [{"role": "user", "content": "\n\n".join(parts)}]}, **row}


if __name__ == "__main__":
    run_prepare(prepare)
