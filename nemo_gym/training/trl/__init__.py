"""Environments for TRL's `GRPOTrainer`, as `rollout_func` or `environment_factory`. The import does not need torch."""

from nemo_gym.training.trl.environments import EnvironmentFactory as EnvironmentFactory
from nemo_gym.training.trl.environments import environment as environment
from nemo_gym.training.trl.prompts import dataset as dataset
from nemo_gym.training.trl.rollouts import Rollouts as Rollouts
