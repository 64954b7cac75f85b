"""The solution that a task brings along, as one call of `bash`."""

import base64
import shlex
from pathlib import Path
from typing import Any

from nemo_gym import find_path
from nemo_gym.testing import call
from resources_servers.harbor.task import SOLUTION, HarborTask, read_task
from resources_servers.harbor.tree import archive_of


def solve(row: dict[str, Any]) -> list[Any]:
    task = _task(row)
    if task.solution is None:
        return [""]
    files = base64.encodebytes(archive_of(task.solution)).decode()
    variables = [f"export {name}={shlex.quote(value)}" for name, value in task.toml.solution.env.items()]
    unpack = f"base64 -d <<'END' | tar -xz -C {SOLUTION}\n{files}END"
    return [
        call("bash", command="\n".join([unpack, *variables, f"chmod +x {SOLUTION}/solve.sh", f"{SOLUTION}/solve.sh"]))
    ]


def full_reward(row: dict[str, Any]) -> float:
    return float(_task(row).solution is not None)


def asks_for_something(row: dict[str, Any]) -> bool:
    return _task(row).solution is not None


def _task(row: dict[str, Any]) -> HarborTask:
    folder = find_path(row["harbor"]["path"], Path.is_dir)
    assert folder is not None, "the row's task exists"
    return read_task(folder)
