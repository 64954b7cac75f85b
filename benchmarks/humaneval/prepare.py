"""Fetch HumanEval's problems, and write them as rows of code_gen.

python benchmarks/humaneval/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import convert_table, run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "humaneval.jsonl"
SOURCE = GitHub(
    "openai/human-eval",
    "data/HumanEval.jsonl.gz",
    "master",
    "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
)
COLUMNS = {"task_id": str, "prompt": str, "entry_point": str, "canonical_solution": str, "test": str}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per function, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, lambda row: row_of(row.fields), skip_bad=skip_bad))
    return output


def row_of(problem: JsonObject) -> JsonObject:
    """Return the row of a problem: the beginning of a function, and a check that calls the function."""
    return {
        "question": problem["prompt"].strip(),
        "verifier_metadata": {
            "unit_tests": {
                "fn_name": problem["entry_point"],
                "check": problem["test"],
                "preamble": problem["prompt"],
            },
            "reference": f"{problem['prompt']}{problem['canonical_solution']}",
        },
        "task_id": problem["task_id"],
    }


if __name__ == "__main__":
    run_prepare(prepare)
