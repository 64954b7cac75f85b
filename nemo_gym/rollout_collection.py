"""Public import path of `nemo_gym.rollouts` and the failure keys of `nemo_gym.schemas.row`; re-exports only."""

from nemo_gym.published.collection_helper import RolloutCollectionHelper
from nemo_gym.published.commands import aggregate_rollouts, collect_rollouts
from nemo_gym.published.global_config import get_global_config_dict
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.trajectories import attach_trajectory_of_captured_calls as _attach_trajectory_record
from nemo_gym.rollouts.job import CollectionSettings as SharedRolloutCollectionConfig
from nemo_gym.rollouts.job import CollectJob as RolloutCollectionConfig
from nemo_gym.rollouts.job import EndToEndJob as E2ERolloutCollectionConfig
from nemo_gym.rollouts.resume import max_attempts as _get_max_rollout_attempts
from nemo_gym.rollouts.shards import AggregationJob as RolloutAggregationConfig
from nemo_gym.schemas.row import FAILURE_CLASS_KEY as NG_FAILURE_CLASS_KEY
from nemo_gym.schemas.row import NO_PERSIST_KEY as NG_NO_PERSIST_KEY
from nemo_gym.schemas.row import TERMINAL_KEY as NG_TERMINAL_KEY

__all__ = [
    "NG_FAILURE_CLASS_KEY", "NG_NO_PERSIST_KEY", "NG_TERMINAL_KEY", "E2ERolloutCollectionConfig",
    "RolloutAggregationConfig", "RolloutCollectionConfig", "RolloutCollectionHelper", "SharedRolloutCollectionConfig",
    "_attach_trajectory_record", "_get_max_rollout_attempts", "aggregate_rollouts", "collect_rollouts",
    "get_global_config_dict",
]  # fmt: skip
