"""The rollouts of one task, as a trainer gets them."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.errors import RolloutError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import Row
from nemo_gym.training.policies import VERSION_AT_END_KEY, VERSION_KEY
from nemo_gym.training.trajectory import Trajectory, sequences_of, trajectory_of


@dataclass(frozen=True)
class Rollout:
    """One rollout of a group."""

    result: JsonObject
    """The graded row, or the row with its failure."""
    reward: float | None
    """The reward, or None if the rollout failed. A failure does not count as a reward of 0."""
    failure: RolloutError | None

    @property
    def policy_version(self) -> int:
        """The version of the policy when the rollout, or its last attempt, began."""
        version: int = self.result[VERSION_KEY]
        return version

    @property
    def policy_version_at_end(self) -> int:
        """The version of the same policy when the rollout ended. It is greater if weights were replaced in place."""
        version: int = self.result[VERSION_AT_END_KEY]
        return version

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
    """In the order of their repeats."""
    failed: int
    """How many rollouts of the task failed, including those that were dropped."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of the rollouts that may be trained on, which neither failed nor are masked."""
        return [each.reward for each in self.rollouts if each.reward is not None and not Row(each.result).is_masked]
