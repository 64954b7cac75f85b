"""The contract of an environment's folder: its promises, and the checks that test them.

Tests of folders import `open_environment` from here. It is imported on first access, so that a command that only reads
a manifest starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.contract.environment import open_environment as open_environment

__all__ = ["open_environment"]

__getattr__ = lazy_names(__name__, {"open_environment": "environment"})
