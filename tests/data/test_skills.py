"""Skill folders: their metadata and their hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nemo_gym.data.skills import SkillMetadata, hash_skill_dir, load_skill_directory, parse_skill_md, stage_skills
from nemo_gym.errors import DataError
from tests.each_case import each_case


@pytest.fixture
def skills(tmp_path) -> Path:
    folder = tmp_path / "skills"
    for name in ("sum", "count"):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: To {name}.\n---\n# How\n")
    (folder / "sum" / "add.py").write_text("print(1 + 1)\n")
    return folder


def test_folder_lists_its_skills_in_order(skills):
    stamp = load_skill_directory(str(skills))
    assert stamp.path == str(skills)
    assert [(skill.name, skill.description) for skill in stamp.skills] == [("count", "To count."), ("sum", "To sum.")]
    assert stamp.hash == hash_skill_dir(skills) == hash_skill_dir(str(skills))


def test_hash_covers_sorted_paths_and_contents(skills):
    digest = hashlib.sha256()
    for name in ("count/SKILL.md", "sum/SKILL.md", "sum/add.py"):
        digest.update(name.encode() + (skills / name).read_bytes())
    assert hash_skill_dir(skills) == digest.hexdigest()[:12]


@pytest.mark.parametrize("change", ["edit", "rename", "add", "remove"])
def test_any_change_in_the_folder_changes_the_hash(skills, change):
    before = hash_skill_dir(skills)
    file = skills / "sum" / "add.py"
    if change == "edit":
        file.write_text("print(1 + 2)\n")
    elif change == "rename":
        file.rename(file.with_name("plus.py"))
    elif change == "add":
        file.with_name("new.py").write_text("")
    else:
        file.unlink()
    assert hash_skill_dir(skills) != before


def test_copied_folder_has_the_same_hash(skills, tmp_path):
    stage_skills(str(skills), tmp_path / "agent" / "skills")
    assert hash_skill_dir(tmp_path / "agent" / "skills") == hash_skill_dir(skills)


@each_case(
    ("front", "known"),
    [
        ("name: a\nversion: 1.0", SkillMetadata(name="a", version="1.0")),
        ("name: a\ndescription: one --- two", SkillMetadata(name="a", description="one --- two")),
        ("name: a\nlicense: MIT", SkillMetadata(name="a")),
        ("name: 7", SkillMetadata(name="7")),
    ],
)
def test_front_matter_is_yaml_between_two_lines(tmp_path, front, known):
    path = tmp_path / "SKILL.md"
    for text in (f"---\n{front}\n---\nBody\n---\n", f"\ufeff---\n{front}\n---", f"---  \n{front}\n--- \n"):
        path.write_text(text, "utf-8")
        assert parse_skill_md(path) == known
    path.write_bytes(f"---\n{front}\n---\n\xff".replace("\n", "\r\n").encode("latin-1"))
    assert parse_skill_md(path) == known


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# A skill", "Begin the file with YAML between two '---' lines"),
        ("---\nname: a\n", "front matter is missing"),
        ("", "front matter is missing"),
        ("---\ndescription: nameless\n---\n", "name: Field required"),
        ("---\n- a list\n---\n", "needs a 'name'"),
        ("---\nname: [a\n---\n", "the front matter is not valid YAML"),
    ],
)
def test_invalid_skill_is_reported_with_its_path(tmp_path, text, words):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "SKILL.md").write_text(text)
    with pytest.raises(DataError) as error:
        load_skill_directory(str(tmp_path))
    assert str(error.value).startswith(str(tmp_path / "bad" / "SKILL.md"))
    assert words in str(error.value)


def test_missing_or_empty_folder_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"skills\.path: folder '.*none' not found in "):
        load_skill_directory(str(tmp_path / "none"))
    with pytest.raises(DataError, match="does not contain a skill"):
        load_skill_directory(str(tmp_path))
    with pytest.raises(ValueError, match=r"skills\.path: folder '.*none' not found in "):
        stage_skills(str(tmp_path / "none"), tmp_path / "staged")
