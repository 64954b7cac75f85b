"""Agent Lightning: its server records the calls of our rollouts, and its adapter makes verl's batch of them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nemo_gym.config.settings import BaseServerConfig, http_url
from nemo_gym.global_config import find_open_port
from nemo_gym.server_utils import ServerClient
from tests.frameworks.counting import AGENT, COUNTED, ROWS, SAMPLING, trained_text, ungraded_row
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("lightning_trainer.py")


@pytest.fixture(scope="module")
def python():
    return python_with("lightning", "agentlightning", "httpx_retries", "torch", "verl")


@pytest.fixture(scope="module")
def step(python, open_run, engine, shared_workplace):
    """Return the batch of a step."""
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    (folder / "gym_lightning.py").write_text(block_of("index.md", "gym_lightning.py"))
    head = urlsplit(open_run.head)
    client = ServerClient.load_from_global_config(BaseServerConfig(host=head.hostname, port=head.port))
    agent = http_url(*client.address_of(AGENT))
    env = shared_workplace.env | {"PYTHONPATH": str(folder), "AGENT_URL": agent}
    given = [
        row | {"responses_create_params": {**row["responses_create_params"], **SAMPLING}}
        for row in (*ROWS, ungraded_row())
    ]
    port = str(find_open_port())
    return report_of(python, TRAINER, engine, port, given=given, folder=folder, env=env)


def test_sampled_tokens_are_trained(step):
    assert [trained_text(each) for each in step["sequences"]] == [COUNTED, COUNTED, "Done."]


def test_each_rollout_has_its_reward(step):
    goals = {name: json.loads(row).get("expected_count") for row, _, name in step["states"]}
    rewards = {goals[each["rollout"]]: each["reward"] for each in step["sequences"]}
    # Agent Lightning counts a failed rollout as 0, as `reward_fillna_value` says.
    assert rewards == {1: 1.0, 9: 0.0, None: 0.0}
    assert sorted(state for _, state, _ in step["states"]) == ["failed", *["succeeded"] * 3]
    assert step["metrics"]["training/n_rollouts_w_reward"] == 3
