"""Public import path of `nemo_gym.data.prompts`; re-exports only."""

from nemo_gym.data.prompts import (
    MaterializePromptsConfig,
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    materialize_prompts,
    validate_prompt_compatibility,
)
from nemo_gym.published.commands import materialize_prompts_cli
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.prompts import load_prompt_config

__all__ = [
    "MaterializePromptsConfig", "PromptConfig", "apply_prompt_to_row", "fill_prompt", "load_prompt_config",
    "materialize_prompts", "materialize_prompts_cli", "validate_prompt_compatibility",
]  # fmt: skip
