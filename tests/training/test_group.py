"""What a trainer reads from a group."""

from nemo_gym.errors import ModelFailed
from nemo_gym.training import Group, Rollout


def test_rewards_leave_out_failed_and_masked_rollouts():
    masked = Rollout({"reward": 0.0, "mask_sample": True}, 0.0, None)
    lost = Rollout({}, None, ModelFailed("no answer"))
    scored = Rollout({"reward": 1.0}, 1.0, None)
    assert Group({}, (masked, lost, scored), failed=1).rewards == [1.0]


def said(*sampled):
    output = [
        {"type": "message", "prompt_token_ids": [1], "generation_token_ids": [each], "generation_log_probs": [-0.5]}
        for each in sampled
    ]
    return {"response": {"output": output}}


def test_roles_have_their_own_tokens_and_rewards():
    parts = {"black": {**said(3), "reward": -1.0}, "white": said(4), "user": said(5)}
    result = {**said(2), "reward": 1.0, "roles": parts, "role_rewards": {"user": 0.5}}
    roles = Rollout(result, 1.0, None).roles
    sampled = {name: each.trajectory().completion_ids for name, each in roles.items()}
    assert sampled == {"black": [3], "white": [4], "user": [5]}
    assert {name: each.reward for name, each in roles.items()} == {"black": -1.0, "white": None, "user": 0.5}
    assert {name: each.trajectory().is_masked for name, each in roles.items()} == {
        "black": False, "white": True, "user": False,
    }  # fmt: skip
    assert Rollout(said(2) | {"reward": 1.0}, 1.0, None).roles == {}
