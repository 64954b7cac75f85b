"""Validate the rows' own fields with the class `TaskData` of a folder's `task_data.py`, as NeMo Gym 0.7 does."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nemo_gym import paths
from nemo_gym.config.explain import explained_in_a_line
from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import RESOURCES_TIER, ResourcesServerRef
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.sessions import own_fields

FILE = "task_data.py"
CLASS = "TaskData"


def task_data_class(folder: Path) -> type[BaseModel] | None:
    """Return the `TaskData` class of a folder, or None if the folder has no `task_data.py`.

    Raise `DataError` if the file cannot be imported or does not define the class.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    paths.augment_sys_path()
    name = f"{folder.parent.name}.{folder.name}.{path.stem}"
    earlier = sys.modules.get(name)
    try:
        module = paths.module_at(path, name)
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{path} cannot be imported: {type(error).__name__}: {error}. Correct the file, or install the packages "
            "that it imports."
        ) from error
    finally:
        if earlier is not None:
            sys.modules[name] = earlier
    found = getattr(module, CLASS, None)
    if not (inspect.isclass(found) and issubclass(found, BaseModel)):
        raise DataError(f"{path} does not define {CLASS}. Define it as a pydantic model of the row's own fields.")
    return found


def task_data_of_agents(run: RunConfig) -> dict[str, type[BaseModel]]:
    """Return the `TaskData` class of each agent's resources server, by the agent's name.

    Agents whose resources server has no such class are left out.
    """
    found: dict[str, type[BaseModel]] = {}
    for agent in run.servers_of("responses_api_agents"):
        reference = agent.settings.get("resources_server")
        try:
            name = ResourcesServerRef.model_validate(reference).name
        except ValidationError:
            continue
        server = run.servers.get(name)
        if server is not None and server.type == RESOURCES_TIER and (kind := task_data_class(server.folder)):
            found[agent.name] = kind
    return found


def problems_of_task_data(row: JsonObject, kind: type[BaseModel]) -> str | None:
    """Describe the problems of a row's own fields. Return None if the fields are valid."""
    try:
        kind.model_validate(own_fields(row))
    except ValidationError as error:
        return f"{explained_in_a_line(error)}."
    return None
