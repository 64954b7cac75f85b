"""What a trainer reads from a group."""

from nemo_gym.errors import ModelFailed
from nemo_gym.training import Group, Rollout


def test_rewards_leave_out_failed_and_masked_rollouts():
    masked = Rollout({"reward": 0.0, "mask_sample": True}, 0.0, None)
    lost = Rollout({}, None, ModelFailed("no answer"))
    scored = Rollout({"reward": 1.0}, 1.0, None)
    assert Group({}, (masked, lost, scored), failed=1).rewards == [1.0]
