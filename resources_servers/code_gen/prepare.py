"""Generate programming problems with hidden tests, or convert HumanEval's problems.

python resources_servers/code_gen/prepare.py --count 100 --output <rows.jsonl>
python resources_servers/code_gen/prepare.py --input <HumanEval.jsonl.gz> --output <rows.jsonl>
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import Split, UsageError, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.code_gen.humaneval import rows_of_humaneval
from resources_servers.code_gen.problems.rows import generated_rows, task_of


def prepare(
    output: Path,
    count: int = 100,
    seed: int = 0,
    *,
    split: Split | None = None,
    input: Path | None = None,
    skip_bad: bool = False,
) -> Path:
    """Write `count` rows of generated problems, or one row per problem in `input`. Return the output path.

    input: a HumanEval file (JSON Lines, plain or gzipped)

    Raises `DataError` with file and line if a line of `input` is not a HumanEval problem, and writes nothing.
    """
    if input is None:
        write_rows(output, split_rows(generated_rows(seed), split, count, key=task_of))
    elif split is not None:
        raise UsageError(
            "--split: HumanEval's problems are not split, because all of them are for evaluation. Leave it out."
        )
    else:
        write_rows(output, rows_of_humaneval(input, skip_bad=skip_bad))
    return output


if __name__ == "__main__":
    run_prepare(prepare)
