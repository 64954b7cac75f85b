"""The servers of an example, with a policy that speaks Chat Completions, and the tasks of the counter game."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.global_config import get_global_config_dict

ENVIRONMENT = "resources_servers/example_session_state_mgmt"
CONFIG = f"{ENVIRONMENT}/configs/example_session_state_mgmt.yaml"
AGENT = "example_session_state_mgmt_simple_agent"
TARGETS = range(1, 5)


def rows() -> list[dict[str, Any]]:
    """Return one task for each target of the counter."""
    return [
        {
            "responses_create_params": {"input": [{"role": "user", "content": f"Bring the counter to {target}"}]},
            "initial_count": 0,
            "expected_count": target,
        }
        for target in TARGETS
    ]


def endpoint(url: str) -> dict[str, Any]:
    """Return the settings of a policy that an endpoint serves at `url`."""
    return {
        "config_paths": ["responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"],
        "policy_base_url": url,
        "policy_api_key": "none",
        "policy_model_name": "policy",
    }


def counter_servers(policy: dict[str, Any], environment: str = CONFIG) -> AbstractContextManager[str]:
    """Start the servers of a counter, whose agent ends a rollout after two turns."""
    agent = {"responses_api_agents": {"simple_agent": {"max_steps": 2}}}
    return servers_of({**policy, f"{Path(environment).stem}_simple_agent": agent}, environment)


@contextmanager
def servers_of(policy: dict[str, Any], environment: str) -> Iterator[str]:
    """Start environment, agent and model server, and yield the address of their head server."""
    settings = {
        **policy,
        "config_paths": [environment, *policy["config_paths"]],
        "head_server": {"host": "127.0.0.1", "port": 0},
    }
    with RunHelper() as servers:
        servers.start(
            GlobalConfigDictParserConfig(
                dotenv_path=None, initial_global_config_dict=OmegaConf.create(settings), skip_load_from_cli=True
            )
        )
        yield f"http://127.0.0.1:{get_global_config_dict()['head_server']['port']}"
