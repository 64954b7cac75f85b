"""The rollouts of one task, as they are passed to a trainer."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from nemo_gym.errors import RolloutError
from nemo_gym.jsonl import JsonObject
from nemo_gym.records.conversation import object_at
from nemo_gym.schemas.row import Row
from nemo_gym.training.trajectory import Trajectory, sequences_of, trajectory_of


@dataclass(frozen=True)
class Rollout:
    """One rollout of a group, finished or failed."""

    result: JsonObject
    """The graded row, or the row with its failure."""
    reward: float | None
    """The reward, or None if the rollout failed. A failure does not count as a reward of 0."""
    failure: RolloutError | None

    @property
    def policy_version(self) -> int:
        """The version of the policy when the last attempt of the rollout began."""
        version: int = self.result["policy_version"]
        return version

    @property
    def policy_version_at_end(self) -> int:
        """The policy's version when the rollout ended: above `policy_version` if weights were replaced in place."""
        version: int = self.result["policy_version_at_end"]
        return version

    @property
    def roles(self) -> dict[str, Rollout]:
        """The part of each trainable role, by its agent's name, with its own reward; empty if there is only one role.

        For example, a game of two players has two parts. The rollout itself has the response of the first player. The
        rewards of roles that the environment grades at the end are in `role_rewards`, and None if it does not.
        """
        rewards = object_at(self.result, "role_rewards")
        parts = {name: {"reward": rewards.get(name), **part} for name, part in object_at(self.result, "roles").items()}
        return {name: Rollout({**self.result, **part}, part["reward"], None) for name, part in parts.items()}

    def trajectory(self) -> Trajectory:
        """Return the rollout's only training sequence; see `trajectory_of`."""
        return trajectory_of(self.result)

    def sequences(self) -> list[Trajectory]:
        """Return the rollout's training sequences; see `sequences_of`."""
        return sequences_of(self.result)


@dataclass(frozen=True)
class Group:
    """All rollouts of one task, for algorithms such as GRPO that compare them with each other."""

    row: JsonObject
    """The task, as the trainer passed it."""
    rollouts: tuple[Rollout, ...]
    """The rollouts in the order of their repeats."""
    failed: int
    """The number of failed rollouts, including those that were dropped from `rollouts`."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of the rollouts that neither failed nor are masked. Only these may be trained on."""
        return [each.reward for each in self.rollouts if each.reward is not None and not Row(each.result).is_masked]

    @property
    def std(self) -> float:
        """The standard deviation of `rewards`; 0 if all are equal, so that no rollout is better than the others."""
        return statistics.pstdev(self.rewards) if self.rewards else 0.0
