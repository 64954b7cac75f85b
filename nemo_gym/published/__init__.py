"""What exists only for code that was written for the published package: its names, helpers and configuration.

This room may import everything. Only modules that re-export its names import it. From then on, its hooks are used.
"""

from nemo_gym.calls.hooks import use
from nemo_gym.published.hooks import PublishedHooks

__all__ = ["PublishedHooks"]

use(PublishedHooks())
