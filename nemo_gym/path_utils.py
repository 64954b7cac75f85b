"""Published name of the naming of a run's files in `nemo_gym.rollouts.job`."""

from nemo_gym.rollouts.job import failures_path_for

__all__ = ["failures_path_for"]
