"""Run programs as agents, in a sandbox. They call the model and the tools themselves, through a gateway."""

from nemo_gym.harness.exchange import Exchange, task_text, types_without_text
from nemo_gym.harness.gateway import Gateway, ToolAddress, Translated
from nemo_gym.harness.program import Program, ProgramRun
from nemo_gym.harness.record import ClaimRules, OnClaims
from nemo_gym.harness.work import Done, Work
from nemo_gym.harness.workspace import Collected, Limits, Workspace

__all__ = [
    "ClaimRules", "Collected", "Done", "Exchange", "Gateway", "Limits", "OnClaims", "Program",
    "ProgramRun", "ToolAddress", "Translated", "Work", "Workspace", "task_text", "types_without_text",
]  # fmt: skip
