"""Public import path of `nemo_gym.metrics`; re-exports only."""

from nemo_gym.metrics import (
    AggregateMetricsMixin,
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from nemo_gym.metrics.profile import RewardProfileConfig, RewardProfiler
from nemo_gym.published.commands import reward_profile
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on

__all__ = [
    "AggregateMetricsMixin", "RewardProfileConfig", "RewardProfiler", "add_avg_sample_std_dev",
    "compute_aggregate_metrics", "compute_pass_majority_metrics", "compute_subset_metrics", "highest_k_metrics",
    "reward_profile",
]  # fmt: skip
