"""Tests of images and sounds: which are shown, and which files are never read."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import DataError
from nemo_gym.viewer.media import content_of

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def image(content: bytes, type_: str = "image/png") -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:{type_};base64,{b64encode(content).decode()}"}


def test_type_is_that_of_the_content():
    found = content_of(image(PIXEL, "text/html"), "image", {}, [])
    assert (found.content, found.type) == (PIXEL, "image/png")
    sound = {"type": "input_audio", "input_audio": {"data": b64encode(b"ID3....").decode(), "format": "wav"}}
    assert content_of(sound, "audio", {}, []).type == "audio/mpeg"


@pytest.mark.parametrize("content", [SVG, b"<!doctype html><script>alert(1)</script>", b"", b"RIFF....WAVE"])
def test_other_content_is_refused(content: bytes):
    with pytest.raises(DataError, match="format that browsers cannot show safely"):
        content_of(image(content), "image", {}, [])


class Folder:
    """A dataset's folder with one picture in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "pixel.png").write_bytes(PIXEL)

    def content(self, name: str = "pixel.png", *given: Path) -> bytes:
        part = {"type": "input_image", "image_path": name}
        return content_of(part, "image", {"_ng_media_dir": str(self.path)}, given or [self.path.parent]).content


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


def test_files_of_the_dataset_are_shown(folder: Folder):
    assert folder.content() == PIXEL


def test_folders_that_are_not_given_stay_closed(folder: Folder, tmp_path: Path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(DataError, match=r"may not read\. Pass this folder to ng view, too"):
        folder.content("pixel.png", tmp_path / "runs" / "x.jsonl")


def test_paths_out_of_the_folder_are_refused(folder: Folder, tmp_path: Path):
    (tmp_path / "secret.png").write_bytes(PIXEL)
    (folder.path / "link.png").symlink_to(tmp_path / "secret.png")
    (folder.path / "page.png").write_bytes(SVG)
    for name in ("../secret.png", str(tmp_path / "secret.png"), "link.png", "page.png", "missing.png", ""):
        with pytest.raises(DataError):
            folder.content(name)


@pytest.mark.parametrize("place", ["/", "", 5, None, "\0", "/proc/self"])
def test_hostile_folders_are_refused(place: object):
    with pytest.raises(DataError):
        content_of({"type": "input_image", "image_path": "etc/a.png"}, "image", {"_ng_media_dir": place}, [])
