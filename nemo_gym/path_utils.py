"""Public import path of `failures_path_for` in `nemo_gym.rollouts.job`; re-exports only."""

from nemo_gym.rollouts.job import failures_path_for

__all__ = ["failures_path_for"]
