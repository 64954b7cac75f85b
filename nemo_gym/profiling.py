"""Public import path of the profiler; re-exports only."""

from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.web.profiling import Profiler

__all__ = ["Profiler"]
