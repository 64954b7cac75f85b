"""Turn rollouts into training data. Nothing here imports torch."""

from nemo_gym.training.client import SyncTrainingClient as SyncTrainingClient
from nemo_gym.training.client import TrainingClient as TrainingClient
from nemo_gym.training.curriculum import Curriculum as Curriculum
from nemo_gym.training.group import Group as Group
from nemo_gym.training.group import Rollout as Rollout
from nemo_gym.training.mixing import mixed as mixed
from nemo_gym.training.trajectory import InvalidTokens as InvalidTokens
from nemo_gym.training.trajectory import NonContiguousTokens as NonContiguousTokens
from nemo_gym.training.trajectory import Trajectory as Trajectory
from nemo_gym.training.trajectory import Turn as Turn
from nemo_gym.training.trajectory import sequences_of as sequences_of
from nemo_gym.training.trajectory import trajectory_of as trajectory_of
