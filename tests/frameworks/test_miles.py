"""A framework with a recording gateway per rollout, as miles has: each row names its own policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ModelFailed
from nemo_gym.http.internal import split_url
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.training import trajectory_of
from tests.gateway import Call, Gateway, running_gateway

pytestmark = pytest.mark.slow

CONFIGS = (
    "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
AGENT = "example_session_state_mgmt_simple_agent"
ROLLOUTS = 8


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def head(shared_workplace: Any) -> Iterator[BaseServerConfig]:
    # No endpoint is at the configured address, so each call must arrive at the gateway.
    command = shared_workplace.start_servers(
        f"+config_paths=[{','.join(CONFIGS)}]", "+policy_base_url=http://127.0.0.1:9/v1", "+policy_api_key=none",
        "+policy_model_name=policy", "+allow_policy_override=true",
        "+model_endpoint_readiness_timeout_seconds=0",
    )  # fmt: skip
    host, port, _, _ = split_url(command.head)
    yield BaseServerConfig(host=host, port=port)
    command.end()


def row(text: str, **policy: str) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": text}]},
        "initial_count": 1,
        "expected_count": 3,
        "agent_ref": {"type": "responses_api_agents", "name": AGENT},
        **policy,
    }


async def test_each_rollout_is_recorded_at_its_own_gateway(head, gateway):
    sessions = [f"session-{number}" for number in range(ROLLOUTS)]
    rows = [
        row(f"Add in {name}.", policy_base_url=gateway.url(name), policy_api_key=f"key-{name}") for name in sessions
    ]
    ended = [await each for each in RolloutCollectionHelper().run_examples(rows, head)]
    assert len(ended) == ROLLOUTS
    for given, result in ended:
        name = given["policy_api_key"].removeprefix("key-")
        text = f"Add in {name}."
        assert gateway.calls_of(text) == [Call(name, f"Bearer key-{name}", "policy", text)] * 2
        assert (result["reward"], [key for key in result if key.startswith("policy_")]) == (1.0, [])
        trajectory = trajectory_of(result)
        assert [len(turn.sampled_ids) for turn in trajectory.turns] == [len('increment_counter{"count": 2}\n'), 6]
        assert "".join(map(chr, trajectory.turns[1].sampled_ids)) == "Done.\n"
    assert len(gateway.calls) == 2 * ROLLOUTS


async def test_gateway_that_has_gone_fails_its_rollout(head, gateway):
    rows = [
        row("kept", policy_base_url=gateway.url("kept")),
        row("gone", policy_base_url="http://127.0.0.1:9/gone/v1", policy_api_key="key-of-the-gone-one"),
    ]
    kept, gone = RolloutCollectionHelper().run_examples(rows, head)
    assert (await kept)[1]["reward"] == 1.0
    with pytest.raises(ModelFailed, match=r":9/gone/v1/chat/completions could not connect") as error:
        await gone
    assert "key-of-the-gone-one" not in str(error.value)
