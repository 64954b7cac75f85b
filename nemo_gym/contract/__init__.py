"""The contract of an environment's folder: its promises, and the checks that test them."""

from __future__ import annotations

from nemo_gym.contract.checks import CHECKS, Finding, check_environment
from nemo_gym.contract.environment import Environment, open_environment
from nemo_gym.contract.examples import example_rollouts, write_examples
from nemo_gym.contract.tasks import Task, sample_of, tasks_in

__all__ = [
    "CHECKS", "Environment", "Finding", "Task", "check_environment", "example_rollouts", "open_environment",
    "sample_of", "tasks_in", "write_examples",
]  # fmt: skip
