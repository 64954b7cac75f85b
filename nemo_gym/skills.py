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

__all__ = [
    "SkillMetadata", "SkillsConfig", "SkillsRef", "hash_skill_dir", "load_skill_directory", "parse_skill_md",
    "stage_skills",
]  # fmt: skip
