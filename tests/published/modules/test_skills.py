"""`nemo_gym.skills`, as used by agents that pass skills to the program they run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nemo_gym.global_config import SKILLS_REF_KEY_NAME
from nemo_gym.skills import (
    SkillMetadata,
    SkillsConfig,
    SkillsRef,
    hash_skill_dir,
    load_skill_directory,
    parse_skill_md,
    stage_skills,
)


@pytest.fixture
def skills(tmp_path) -> Path:
    folder = tmp_path / "skills"
    (folder / "sums" / "scripts").mkdir(parents=True)
    (folder / "sums" / "SKILL.md").write_text(
        "---\nname: sums\ndescription: Adds numbers.\nversion: '1.2'\nlicense: MIT\n---\n# Sums\n"
    )
    (folder / "sums" / "scripts" / "add.py").write_bytes(b"print(1)\r\n")
    return folder


def test_row_is_stamped_with_its_skill_folder(skills):
    stamp = load_skill_directory(SkillsConfig(path=str(skills)).path)
    assert isinstance(stamp, SkillsRef)
    assert SKILLS_REF_KEY_NAME == "skills_ref"
    assert stamp.model_dump() == {
        "path": str(skills),
        "hash": hash_skill_dir(skills),
        "skills": [{"name": "sums", "description": "Adds numbers.", "version": "1.2"}],
    }


def test_hash_covers_paths_and_bytes(skills):
    digest = hashlib.sha256()
    for name in ("sums/SKILL.md", "sums/scripts/add.py"):
        digest.update(name.encode())
        digest.update((skills / name).read_bytes())
    assert hash_skill_dir(skills) == digest.hexdigest()[:12]


def test_agent_gets_its_own_copy(skills, tmp_path):
    home = tmp_path / "home" / ".agent" / "skills"
    stage_skills(str(skills), str(home))
    assert (home / "sums" / "scripts" / "add.py").read_bytes() == b"print(1)\r\n"
    (home / "sums" / "SKILL.md").unlink()
    assert (skills / "sums" / "SKILL.md").exists()


def test_skill_file_starts_with_its_name(skills):
    file = skills / "sums" / "SKILL.md"
    assert parse_skill_md(file) == SkillMetadata(name="sums", description="Adds numbers.", version="1.2")
    file.write_text("---\ndescription: nameless\n---\n")
    with pytest.raises(ValueError, match=r"SKILL\.md.*'name'"):
        parse_skill_md(file)
