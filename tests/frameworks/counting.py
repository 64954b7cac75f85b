"""Rows of the counting environment for the strict engine's policy."""

from __future__ import annotations

from tests.frameworks.engine import TEMPERATURE, TOP_P, script

CONFIGS = (
    "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
AGENT = "example_session_state_mgmt_simple_agent"
SAMPLING = {"temperature": TEMPERATURE, "top_p": TOP_P}


def counting_row(*turns: str, start: int = 0, goal: int = 0, **params: object) -> dict[str, object]:
    """Return a row for which the policy takes these turns."""
    message = {"role": "user", "content": script(*turns)}
    return {
        "responses_create_params": {"input": [message], **params},
        "initial_count": start,
        "expected_count": goal,
        "agent_ref": {"type": "responses_api_agents", "name": AGENT},
    }


def add(count: int) -> str:
    """Return a turn that adds to the counter."""
    return f'increment_counter({{"count": {count}}})'
