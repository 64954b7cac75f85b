"""Public import path of the profiler; re-exports only."""

from nemo_gym.web.profiling import Profiler

__all__ = ["Profiler"]
