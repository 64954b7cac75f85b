"""The pictures in `docs/images` are those that their script paints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MOST_DIFFERENT = 2.0
"""The mean difference of a colour, of 255: versions of Pillow draw edges and letters differently."""

LARGEST_SCREENSHOT = 200_000
"""In bytes. Each new version of a screenshot stays in the repository's history."""


def test_pictures_equal_what_the_script_paints(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    statistics = pytest.importorskip("PIL.ImageStat")
    chops = pytest.importorskip("PIL.ImageChops")
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "docs" / "_ext")}
    subprocess.run([sys.executable, "-m", "pictures", tmp_path], cwd=REPOSITORY, env=env, check=True)
    painted = sorted(tmp_path.glob("*.png"))
    assert [path.name for path in painted] == ["dice.png", "visual_reasoning.png"]
    for path in painted:
        new = image.open(path).convert("RGB")
        checked_in = image.open(REPOSITORY / "docs" / "images" / path.name).convert("RGB")
        advice = f"{path.name} is out of date. Run: PYTHONPATH=docs/_ext python -m pictures docs/images"
        assert new.size == checked_in.size, advice
        assert max(statistics.Stat(chops.difference(new, checked_in)).mean) < MOST_DIFFERENT, advice


def test_screenshots_are_small_and_shown() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("[!_]*/*.md")]
    shown = {name for page in pages for name in re.findall(r"images/(viewer_\w+\.webp)", page.read_text("utf-8"))}
    files = {path.name: path.stat().st_size for path in (REPOSITORY / "docs" / "images").glob("*.webp")}
    assert set(files) == shown
    assert {name: size for name, size in files.items() if size > LARGEST_SCREENSHOT} == {}
