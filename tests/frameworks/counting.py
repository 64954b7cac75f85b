"""Rows of the counting environment for the strict engine's policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.frameworks.engine import MAX_MODEL_LEN, TEMPERATURE, TOP_P, decode, log_prob, script

CONFIGS = (
    "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
AGENT = "example_session_state_mgmt_simple_agent"
FORGETFUL = "forgetful"
"""An agent that forgets its first turn, so that each of its rollouts has two sequences."""
SAMPLING = {"temperature": TEMPERATURE, "top_p": TOP_P}
FORGETFUL_AGENT = """
from nemo_gym import ConversingAgent, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming


class ForgetfulAgent(ConversingAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def converse(self, request, body, row, session):
        conversation = await self.begin(row["responses_create_params"], session)
        await self.answer(conversation)
        before, conversation.response["output"] = conversation.said, []
        conversation.hear("Again.")
        await self.answer(conversation)
        conversation.response["output"] = [*before, *conversation.said]
        return conversation
"""
FORGETFUL_CONFIG = f"""
forgetful:
  responses_api_agents:
    forgetful_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {CONFIGS[0].split("/")[1]}}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""


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


def forgetful_row() -> dict[str, object]:
    """Return a row whose rollout earns a reward and has two sequences."""
    return counting_row(add(1), "Done.", goal=2) | {"agent_ref": {"name": FORGETFUL}}


def ungraded_row() -> dict[str, object]:
    """Return a row whose rollout fails."""
    row = counting_row("Done.")
    del row["expected_count"]
    return row


COUNTED = '<call>increment_counter {"count": 1}</call>Done.'
ROWS = [
    counting_row(add(1), "Done.", goal=1),
    counting_row(add(1), "Done.", goal=9),
    counting_row("X" * MAX_MODEL_LEN),
]
"""A success, a rollout without reward, and one whose first prompt fills the context."""


def trained_text(sequence: Mapping[str, Any]) -> str:
    """Return the text of the tokens at the positions `trained` of a sequence, and check their log-probabilities."""
    tokens = [sequence["tokens"][position] for position in sequence["trained"]]
    expected = [log_prob(token, position) for token, position in zip(tokens, sequence["trained"], strict=True)]
    assert sequence["log_probs"] == pytest.approx(expected)
    return decode(tokens)
