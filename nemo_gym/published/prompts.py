"""`load_prompt_config` with the function attribute that tests of server folders call."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.data import prompts
from nemo_gym.data.prompts import PromptConfig


def load_prompt_config(path: str | Path) -> PromptConfig:
    """Find a prompt file in the search roots and read it. `load_prompt_config.cache_clear()` empties the cache."""
    return prompts.load_prompt_config(path)


load_prompt_config.cache_clear = prompts.read_prompt.cache_clear  # type: ignore[attr-defined]
