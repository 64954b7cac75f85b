"""The example files of an environment: five tasks, their metrics, and five rollouts of them."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from nemo_gym.data.statistics import dataset_statistics, write_metrics
from nemo_gym.errors import DataError
from nemo_gym.jsonl import read_rows

EXAMPLES = 5


def check_examples(folder: Path) -> None:
    """Raise `DataError` with all problems if an environment's examples are not complete.

    data/example.jsonl and data/example_rollouts.jsonl must have 5 lines each, and data/example_metrics.json must count
    5 rows. Unresolved `*conflict*` files are not allowed.
    """
    data, configs = folder / "data", folder / "configs"
    config = min(configs.glob("*.yaml"), default=configs / f"{folder.name}.yaml")
    make_metrics = f"python -m nemo_gym.data.examples {folder}"
    make_rollouts = (
        f"ng eval run --config {config} --model-type <a model server> --split example --num-repeats 1 "
        f"--overwrite --output {data / 'example_rollouts.jsonl'}"
    )
    problems = [
        *_problems_of_rows(data / "example.jsonl", "Write five tasks, one JSON object per line."),
        *_problems_of_metrics(data / "example_metrics.json", f"Create it with: {make_metrics}"),
        *_problems_of_rows(data / "example_rollouts.jsonl", f"Create it with: {make_rollouts}"),
        *(
            f"{path}: these metrics contradict the earlier ones. Compare this file with the earlier metrics "
            "file, then delete this file."
            for path in sorted(data.glob("*conflict*"))
        ),
    ]
    if problems:
        raise DataError("\n".join(problems))


def write_example_metrics(folder: Path) -> Path:
    """Write data/example_metrics.json in an environment's folder and return the file's path."""
    rows = folder / "data" / "example.jsonl"
    shown = f"{folder.resolve().parent.name}/{folder.resolve().name}/data/example.jsonl"
    metrics = {"name": "example", "type": "example", "jsonl_fpath": shown, **dataset_statistics(read_rows(rows))}
    path = rows.with_name("example_metrics.json")
    write_metrics(path, metrics)
    return path


def _problems_of_rows(path: Path, advice: str) -> list[str]:
    if not path.is_file():
        return [f"{path}: file not found. {advice}"]
    try:
        count = sum(1 for _ in read_rows(path))
    except DataError as error:
        return [str(error)]
    if count > EXAMPLES:
        advice = "Move the others to a dataset of type train or validation."
    return [] if count == EXAMPLES else [f"{path}: expected {EXAMPLES} lines, found {count}. {advice}"]


def _problems_of_metrics(path: Path, advice: str) -> list[str]:
    if not path.is_file():
        return [f"{path}: file not found. {advice}"]
    try:
        metrics: object = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        return [f"{path}:{error.lineno}:{error.colno}: not valid JSON ({error.msg}). {advice}"]
    count = metrics.get("Number of examples") if isinstance(metrics, dict) else None
    wrong = f"{path}: expected 'Number of examples' to be {EXAMPLES}, found {count}. {advice}"
    return [] if count == EXAMPLES else [wrong]


if __name__ == "__main__":
    print(write_example_metrics(Path(sys.argv[1])))  # noqa: T201 - a command's output
