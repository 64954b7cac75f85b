"""A game of two agents in training: each player has a reward, tokens and a version of the policy."""

import pytest

from nemo_gym.training import TrainingClient

pytestmark = pytest.mark.slow

DUEL = """
from nemo_gym import BaseResetRequest, BaseResetResponse, BaseStepRequest, BaseStepResponse, SessionState
from nemo_gym import SteppedResourcesServer


class ResetRequest(BaseResetRequest):
    roles: list[str]


class Duel(SessionState):
    roles: list[str] = []
    turns: int = 0


class DuelServer(SteppedResourcesServer):
    async def reset(self, body: ResetRequest, duel: Duel) -> BaseResetResponse:
        duel.roles = body.roles
        return BaseResetResponse(observation="Begin.", info={"role": body.roles[0]})

    async def step(self, body: BaseStepRequest, duel: Duel) -> BaseStepResponse:
        duel.turns += 1
        is_over = duel.turns == 4
        info = {"role": duel.roles[duel.turns % 2]}
        if is_over:
            info["rewards"] = dict(zip(duel.roles, (1.0, -1.0)))
        return BaseStepResponse(observation=f"Turn {duel.turns} is over.", terminated=is_over, info=info)
"""
PLAYER = """
{name}:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: duel}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""
GAME = """
duel_agent:
  responses_api_agents:
    gymnasium_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: duel}
      model_server: {type: responses_api_models, name: policy_model}
      players:
        - {type: responses_api_agents, name: black}
        - {type: responses_api_agents, name: white}
"""
VLLM = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"


def started(workplace, endpoint, game):
    workplace.environment("duel", DUEL)
    config = workplace.folder / "resources_servers/duel/configs/duel.yaml"
    config.write_text(config.read_text() + PLAYER.format(name="black") + PLAYER.format(name="white") + game)
    return workplace.start_servers(
        f"+config_paths=[{config},{VLLM}]", f"+policy_base_url={endpoint}/v1", "+policy_api_key=none",
        "+policy_model_name=echo",
    )  # fmt: skip


async def test_both_players_are_trained(shared_workplace, endpoint, tmp_path):
    run = started(shared_workplace, endpoint, GAME)
    row = {
        "responses_create_params": {"input": "Play."},
        "agent_ref": {"type": "responses_api_agents", "name": "duel_agent"},
    }
    async with TrainingClient(run.head, record=tmp_path / "train.jsonl") as client:
        client.set_policy()
        [group] = [group async for group in client.rollouts([row], repeats=2)]
    for rollout in group.rollouts:
        assert {name: each.reward for name, each in rollout.roles.items()} == {"black": 1.0, "white": -1.0}
        # The endpoint tokenizes only the last message, so each turn is a sequence.
        black, white = (each.sequences() for each in rollout.roles.values())
        said = [["".join(map(chr, turn.completion_ids)) for turn in sequences] for sequences in (black, white)]
        assert said == [["echo: Begin.", "echo: Turn 2 is over."], ["echo: Turn 1 is over.", "echo: Turn 3 is over."]]
        assert {each.reward for each in black} == {1.0}
        assert {each.reward for each in white} == {-1.0}
        assert {version for each in (*black, *white) for version in each.versions} == {1}
    run.end()
