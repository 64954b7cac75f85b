"""The groups that a client has carried over, as JSON, so that a restarted trainer loses none of them."""

from __future__ import annotations

from nemo_gym.calls.problems import failure_of_row
from nemo_gym.errors import RolloutCancelled
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import Row
from nemo_gym.training.group import Group, Rollout


def state_of(group: Group) -> JsonObject:
    """Return a group as JSON."""
    rollouts = [
        {"result": each.result, "reward": each.reward, "failure": each.failure and str(each.failure)}
        for each in group.rollouts
    ]
    return {"row": group.row, "rollouts": rollouts, "failed": group.failed}


def group_of(state: JsonObject) -> Group:
    """Return the group of a state."""
    return Group(state["row"], tuple(map(_rollout_of, state["rollouts"])), state["failed"])


def _rollout_of(state: JsonObject) -> Rollout:
    failure = failure_of_row(Row(state["result"]))
    if failure is None and state["failure"] is not None:
        failure = RolloutCancelled(state["failure"])
    return Rollout(state["result"], state["reward"], failure)
