"""The changelog has short releases, and takes in the items of changelog.d."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from nemo_gym.version import __version__

REPOSITORY = Path(__file__).parents[1]
LONGEST_RELEASE = 60


def releases(text: str) -> dict[str, str]:
    """Return the text of each release, by its version."""
    return {part.split()[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}


def test_releases_are_short() -> None:
    found = releases((REPOSITORY / "CHANGELOG.md").read_text("utf-8"))
    assert {version: len(text.splitlines()) for version, text in found.items()} == {
        version: min(len(text.splitlines()), LONGEST_RELEASE) for version, text in found.items()
    }


def test_latest_release_is_the_version_of_the_package() -> None:
    assert next(iter(releases((REPOSITORY / "CHANGELOG.md").read_text("utf-8")))) == __version__


def test_each_item_has_one_bullet() -> None:
    items = {path.name: path.read_text("utf-8") for path in (REPOSITORY / "changelog.d").glob("*.md")}
    items.pop("README.md")
    assert [name for name, text in items.items() if not re.fullmatch(r"- .+\n(?:  .+\n)*", text)] == []


def test_make_moves_items_into_a_release(tmp_path: Path) -> None:
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "changelog.d").mkdir()
    for name in ("Makefile", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    shutil.copy(REPOSITORY / "changelog.d/README.md", tmp_path / "changelog.d/README.md")
    (tmp_path / "nemo_gym/version.py").write_text('__version__ = "9.8.7"\n')
    (tmp_path / "changelog.d/view.md").write_text("- `ng view` shows films.\n")
    subprocess.run(["make", "changelog"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    before, after = (releases((root / "CHANGELOG.md").read_text("utf-8")) for root in (REPOSITORY, tmp_path))
    assert list(after) == ["9.8.7", *before]
    assert "- `ng view` shows films.\n" in after["9.8.7"]
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]
    again = subprocess.run(
        ["make", "changelog"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60
    )
    assert "changelog.d has no items" in again.stderr
