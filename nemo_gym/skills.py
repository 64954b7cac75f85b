"""Public import path of `nemo_gym.data.skills`; re-exports only."""

from nemo_gym.data.skills import (
    SkillMetadata,
    SkillsConfig,
    SkillsRef,
    hash_skill_dir,
    load_skill_directory,
    parse_skill_md,
    stage_skills,
)
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on

__all__ = [
    "SkillMetadata",
    "SkillsConfig",
    "SkillsRef",
    "hash_skill_dir",
    "load_skill_directory",
    "parse_skill_md",
    "stage_skills",
]
