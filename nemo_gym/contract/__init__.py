"""The contract of an environment's folder: its promises, and the checks that test them.

The names below are imported on first access, so that a command that only reads a manifest starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.contract.checks import CHECKS as CHECKS
    from nemo_gym.contract.checks import Finding as Finding
    from nemo_gym.contract.checks import check_environment as check_environment
    from nemo_gym.contract.environment import Environment as Environment
    from nemo_gym.contract.environment import open_environment as open_environment
    from nemo_gym.contract.examples import example_rollouts as example_rollouts
    from nemo_gym.contract.examples import write_examples as write_examples
    from nemo_gym.contract.tasks import Task as Task
    from nemo_gym.contract.tasks import sample_of as sample_of
    from nemo_gym.contract.tasks import tasks_in as tasks_in

_HOMES = {
    "CHECKS": "checks",
    "Finding": "checks",
    "check_environment": "checks",
    "Environment": "environment",
    "open_environment": "environment",
    "example_rollouts": "examples",
    "write_examples": "examples",
    "Task": "tasks",
    "sample_of": "tasks",
    "tasks_in": "tasks",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _HOMES)
