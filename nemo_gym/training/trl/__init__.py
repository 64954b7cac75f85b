"""TRL's `GRPOTrainer` with our environments: `rollout_func` and `environment_factory`. Importing it needs no torch."""

from nemo_gym.training.trl.environments import EnvironmentFactory as EnvironmentFactory
from nemo_gym.training.trl.environments import environment as environment
from nemo_gym.training.trl.prompts import dataset as dataset
from nemo_gym.training.trl.rollouts import Rollouts as Rollouts
