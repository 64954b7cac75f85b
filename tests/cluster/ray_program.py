"""A Ray program with an actor that starts our servers and runs tasks. Arguments: TASKS AGENT FOLDER LAUNCHER."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray


@ray.remote(num_cpus=1, resources={"site": 1})
class Gym:
    """Servers, and rollouts for the program."""

    def __init__(self, head_node: str, folder: str, launcher: str) -> None:
        os.environ["NEMO_GYM_EXTRA_ROOTS"] = folder
        from nemo_gym.cli import RunHelper
        from nemo_gym.global_config import GlobalConfigDictParserConfig

        self._helper = RunHelper()
        initial = {
            "config_paths": [f"{folder}/run.yaml", "responses_api_models/sample_model/configs/sample_model.yaml"],
            "ray_head_node_address": head_node,
            "head_server": {"port": 0},
            "launcher": launcher,
        }
        self._helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=initial, skip_load_from_cli=True))

    async def rewards(self, rows: list[dict[str, Any]]) -> list[float]:
        """Run the rows and return their rewards."""
        from nemo_gym.rollout_collection import RolloutCollectionHelper

        results = [await each for each in RolloutCollectionHelper().run_examples(rows)]
        return [result["reward"] for _, result in results]

    def shutdown(self) -> None:
        self._helper.shutdown()


if __name__ == "__main__":
    tasks, agent, folder, launcher = sys.argv[1:]
    rows = [{**json.loads(line), "agent_ref": {"name": agent}} for line in Path(tasks).read_text().splitlines()]
    ray.init(address=os.environ["RAY_ADDRESS"])
    gym = Gym.remote(ray.get_runtime_context().gcs_address, folder, launcher)
    rewards = ray.get(gym.rewards.remote(rows))
    ray.get(gym.shutdown.remote())
    print(f"{len(rewards)} rewards of {min(rewards)}")  # noqa: T201
