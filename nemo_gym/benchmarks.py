"""Published name of what lives in `nemo_gym.data.benchmarks`."""

from nemo_gym.data.benchmarks import BenchmarkConfig, find_benchmarks

__all__ = ["BenchmarkConfig", "find_benchmarks"]
