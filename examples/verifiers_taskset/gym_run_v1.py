"""A verifiers taskset with the rows and the tools of a run of nemo_gym, found by the address of its head server.

This file runs where verifiers 0.4 is installed, and does not need nemo_gym there. Put its folder on `PYTHONPATH`:

vf-eval gym_run_v1 --env.taskset.server workplace_assistant --env.taskset.split example …
"""

from pathlib import Path

import httpx
import yaml
from verifiers.v1 import Taskset
from verifiers.v1.tasksets.nemo_gym import NeMoGymConfig, NeMoGymTask, NeMoGymTaskset

__all__ = ["GymRunTaskset"]


class GymRunConfig(NeMoGymConfig):
    """Which rows of which run. `task.headers` are sent with each request, such as the run's token."""

    head: str = "http://127.0.0.1:11000"
    """The head server of the run."""
    server: str | None = None
    """The resources server, by its name in the config. Not needed if the run has only one."""
    split: str = "example"
    """The type of the server's dataset: `example`, `train`, `validation` …"""
    dataset: Path | None = None
    """A file of rows instead. Needed if the run's files are on another machine."""


class GymRunTaskset(NeMoGymTaskset, Taskset[NeMoGymTask, GymRunConfig]):
    """The tasks of a run. Each rollout has a session on the run's resources server, which also grades it."""

    def __init__(self, config: GymRunConfig) -> None:
        super().__init__(config)
        # Also in a worker, which never loads the rows, so that it does not need another setting.
        if config.task.resources_url is None:
            config.task = config.task.model_copy(update={"resources_url": self._instance()["url"]})

    def load(self):
        """Yield a task for each row. Rows without tools get those of the server."""
        if self.config.dataset is None:
            self.config.dataset = self._dataset()
        listed = self._get(f"{self.config.task.resources_url}/tools")
        for task in super().load():
            params = task.data.row["responses_create_params"]
            params["tools"] = params.get("tools") or (listed if isinstance(listed, list) else [])
            yield task

    def _instance(self) -> dict:
        instances = self._get(f"{self.config.head}/server_instances")
        found = {each["config_path"]: each for each in instances if each["server_type"] == "resources_servers"}
        if self.config.server is None and len(found) == 1:
            return next(iter(found.values()))
        if self.config.server not in found:
            raise ValueError(f"{self.config.head}: set `server` to one of the run's servers: {', '.join(found)}")
        return found[self.config.server]

    def _dataset(self) -> Path:
        run = yaml.safe_load(self._get(f"{self.config.head}/global_config_dict_yaml"))
        name = self._instance()["config_path"]
        blocks = [
            agent
            for block in run.values()
            if isinstance(block, dict)
            for agent in (block.get("responses_api_agents") or {}).values()
            if (agent.get("resources_server") or {}).get("name") == name
        ]
        files = {each["type"]: Path(each["jsonl_fpath"]) for block in blocks for each in block.get("datasets") or ()}
        if self.config.split not in files:
            raise ValueError(f"{name} has no dataset '{self.config.split}'. It has: {', '.join(files) or 'none'}")
        path = files[self.config.split]
        # The servers know in which folder their config's relative paths begin.
        root = Path(self._instance()["dir_path"]).parents[1]
        found = next((each for each in (path, root / path) if each.is_file()), None)
        if found is None:
            raise ValueError(f"{path} of the run is not on this machine. Set `dataset` to a copy")
        return found

    def _get(self, url: str):
        response = httpx.get(url, headers=self.config.task.headers, timeout=self.config.task.request_timeout)
        # A server without nemo_gym's base class does not list its tools.
        return None if response.status_code == httpx.codes.NOT_FOUND else response.raise_for_status().json()
