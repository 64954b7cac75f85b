"""Make rows from task folders of Harbor.

python resources_servers/harbor/prepare.py --tasks <folder> --output <rows.jsonl>
"""

from __future__ import annotations

import base64
from pathlib import Path

from nemo_gym import DataError, find_path, run_prepare
from nemo_gym.data.made import record_inputs
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.harbor.task import HarborTask, read_task, task_folders
from resources_servers.harbor.toml import Unsupported
from resources_servers.harbor.tree import archive_of, paths_below

EXAMPLES = "resources_servers/harbor/data/example_tasks"
PLAYABLE = "playable"
SHOWN = 10


def prepare(output: Path, tasks: str = EXAMPLES, split: str | None = None, count: int = 1000, seed: int = 0) -> Path:
    """Write a row for each task, and return their path.

    tasks: the folder of a task, or a folder of them
    split: `playable` leaves out tasks that cannot be played here; otherwise they are an error
    count: the maximum number of rows
    seed: the index of the first task

    Raises `DataError` for a folder that is not a task of Harbor.
    """
    if split not in (None, PLAYABLE):
        raise DataError(f"--split {split}: folders of Harbor have no splits. Use {PLAYABLE}, or no split.")
    base = find_path(tasks, Path.is_dir) or Path(tasks)
    folders = task_folders(base)
    rows, problems = [], []
    for folder in folders:
        try:
            rows.append(_row(read_task(folder), Path(tasks) / folder.relative_to(base)))
        except Unsupported as error:
            problems.append(str(error))
    if problems and (split is None or not rows):
        more = f" {len(problems) - SHOWN} more." if len(problems) > SHOWN else ""
        advice = f" --split {PLAYABLE} leaves them out." if rows else ""
        raise DataError(
            f"{tasks}: {len(problems)} of {len(folders)} tasks cannot be played here. "
            f"{' '.join(problems[:SHOWN])}{more}{advice}"
        )
    write_rows(output, rows[seed : seed + count])
    record_inputs(output, *(path for folder in folders for path in paths_below(folder) if path.is_file()))
    return output


def _row(task: HarborTask, path: Path) -> JsonObject:
    environment, timeout_s = task.toml.environment, task.toml.agent.timeout_sec
    limits = {
        "cpu": environment.cpus,
        "memory_mib": environment.memory_mb,
        "disk_gib": task.resources.disk_gib,
        "timeout_s": timeout_s,
    }
    return {
        "responses_create_params": {"input": [{"role": "user", "content": task.instruction}]},
        "workspace_archive": base64.b64encode(archive_of(task.files)).decode(),
        "sandbox": {
            "workdir": task.workdir,
            "env": task.env,
            **{name: limit for name, limit in limits.items() if limit is not None},
        },
        "harbor": {"name": task.name, "path": path.as_posix(), "digest": task.digest, "image": task.image},
    }


if __name__ == "__main__":
    run_prepare(prepare)
