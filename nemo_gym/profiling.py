"""Published name of the profiler in `nemo_gym.servers.profiling`."""

from nemo_gym.servers.profiling import Profiler

__all__ = ["Profiler"]
