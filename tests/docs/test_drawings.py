"""The drawings in `docs/images` are those that their scripts draw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

REPOSITORY = Path(__file__).parents[2]


def test_images_equal_what_the_scripts_draw(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "docs" / "_ext")}
    subprocess.run([sys.executable, "-m", "drawings", tmp_path], env=env, check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert drawn
    images = REPOSITORY / "docs" / "images"
    for path in drawn:
        assert ElementTree.parse(path).getroot().get("viewBox")
        checked_in = images / path.name
        assert checked_in.is_file()
        assert checked_in.read_text("utf-8") == path.read_text("utf-8"), (
            f"{path.name} is out of date. Run: PYTHONPATH=docs/_ext python -m drawings docs/images"
        )
