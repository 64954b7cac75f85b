"""What a run's verify responses add up to: baselines, pass@k, majority, reward profiles."""

from nemo_gym.metrics.aggregate import (
    AggregateMetricsMixin,
    Baseline,
    compute_aggregate_metrics,
    mean_metrics,
    numbers_of,
)
from nemo_gym.metrics.pass_at_k import (
    PassMajority,
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from nemo_gym.metrics.profile import Completion, RewardProfile, RewardProfiler, write_profile

# The function `profile` is left in its module: re-exported here it would hide the module's own name.
__all__ = [
    "AggregateMetricsMixin",
    "Baseline",
    "Completion",
    "PassMajority",
    "RewardProfile",
    "RewardProfiler",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
    "mean_metrics",
    "numbers_of",
    "write_profile",
]
