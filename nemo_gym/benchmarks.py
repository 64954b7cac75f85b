"""Public import path of `nemo_gym.data.benchmarks` and its commands; re-exports only."""

from nemo_gym.cli.settings import PrepareBenchmarkSettings as PrepareBenchmarkConfig
from nemo_gym.data.benchmarks import BenchmarkConfig, find_benchmarks
from nemo_gym.published.commands import list_benchmarks, prepare_benchmark
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on

__all__ = ["BenchmarkConfig", "PrepareBenchmarkConfig", "find_benchmarks", "list_benchmarks", "prepare_benchmark"]
