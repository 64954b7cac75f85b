"""Generate the same rows as `prepare.py`, with the command line of the published script.

python resources_servers/reasoning_gym/scripts/create_dataset.py --task maze --size 100 --seed 42 --output <rows.jsonl>
"""

from __future__ import annotations

import json
from pathlib import Path

from nemo_gym import DataError, UsageError, run_prepare
from resources_servers.reasoning_gym.prepare import prepare


def create_dataset(
    output: Path,
    *,
    task: str | None = None,
    tasks: str | None = None,
    category: str | None = None,
    all_tasks: bool = False,
    size: int = 100,
    seed: int = 42,
    config: str | None = None,
) -> Path:
    """Write `size` rows and return their path.

    task: a generator's name
    tasks: the names of several generators, separated by commas
    category: all generators of a category, such as logic, except the five that reward wrong answers
    all_tasks: all generators except the five that reward wrong answers
    size: number of rows
    config: the settings of --task as a JSON object

    Raises `DataError` if a name or the settings are wrong; then nothing is written.
    """
    given = {"--task": task, "--tasks": tasks, "--category": category, "--all-tasks": all_tasks}
    chosen = [flag for flag, value in given.items() if value]
    if len(chosen) != 1:
        raise UsageError(f"give one of {', '.join(given)}" + (f", not {' and '.join(chosen)}" if chosen else ""))
    if config and not task:
        raise UsageError("argument --config: only allowed with argument --task")
    if config:
        mixture = json.dumps([{"name": task, "config": _settings(config)}])
        return prepare(output, mixture=mixture, count=size, seed=seed)
    names = [task] if task else [name.strip() for name in tasks.split(",")] if tasks else []
    return prepare(output, names, category=category, count=size, seed=seed)


def _settings(config: str) -> dict[str, object]:
    try:
        settings = json.loads(config)
    except json.JSONDecodeError as error:
        raise DataError(f"--config: not valid JSON ({error}). Write the settings of --task as JSON.") from error
    if not isinstance(settings, dict):
        raise DataError(f"--config: must be a JSON object with the settings of --task, found {config}.")
    return settings


if __name__ == "__main__":
    run_prepare(create_dataset)
