"""Metrics over a run's verify responses: baselines, pass@k, majority votes and reward profiles."""

from nemo_gym.metrics.aggregate import AggregateMetricsMixin, Baseline, compute_aggregate_metrics, numbers_of
from nemo_gym.metrics.pass_at_k import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
    subsets_of,
)
from nemo_gym.metrics.profile import Completion, write_profile

# `profile` is not re-exported, because the function would shadow the module of the same name.
__all__ = [
    "AggregateMetricsMixin", "Baseline", "Completion", "add_avg_sample_std_dev", "compute_aggregate_metrics",
    "compute_pass_majority_metrics", "compute_subset_metrics", "highest_k_metrics", "numbers_of", "subsets_of",
    "write_profile",
]  # fmt: skip
