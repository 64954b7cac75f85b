"""Extracting the files of zip archives that others made."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

import pytest

from nemo_gym import DataError
from nemo_gym.data.archives import extract


def archive_of(folder: Path, **files: str) -> Path:
    """Write an archive. Two underscores in a name are a slash."""
    path = folder / "given.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return path


def everything(path: PurePosixPath) -> Path:
    return Path(path)


def problem_of(archive: Path, folder: Path, place=everything, **options: int) -> str:
    with pytest.raises(DataError) as caught:
        extract(archive, folder, place, **options)
    assert "\n" not in str(caught.value)
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    return str(caught.value)


def test_placed_files_are_extracted(tmp_path):
    archive = archive_of(tmp_path, dev__a="one", dev__b="two", dev__c__a="three")
    found = extract(archive, tmp_path / "to", lambda path: f"new/{path.name}" if path.name == "b" else None)
    assert found == [tmp_path / "to" / "new" / "b"]
    assert found[0].read_text() == "two"
    assert [path.name for path in found[0].parent.iterdir()] == ["b"]


def test_files_are_replaced_only_if_they_differ(tmp_path):
    archive = archive_of(tmp_path, a="one", b="two")
    kept, replaced = extract(archive, tmp_path / "to", everything)
    replaced.write_text("own")
    began = kept.stat().st_ino
    extract(archive, tmp_path / "to", everything)
    assert replaced.read_text() == "two"
    assert kept.stat().st_ino == began


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out"])
def test_paths_out_of_the_folder_are_rejected(tmp_path, name):
    archive = archive_of(tmp_path, **{name.replace("/", "__"): "text"})
    assert "leads out of" in problem_of(archive, tmp_path / "to", lambda path: Path(name))


def test_links_out_of_the_folder_are_rejected(tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "link").symlink_to(tmp_path)
    assert "leads out of" in problem_of(archive_of(tmp_path, link__a="text"), tmp_path / "to")


def test_archives_with_too_large_files_are_rejected(tmp_path):
    archive = archive_of(tmp_path, a="x" * 600, b="x" * 600)
    assert "its files have 1,200 bytes, more than 1,000" in problem_of(archive, tmp_path / "to", most_bytes=1000)


def test_understated_sizes_are_rejected(tmp_path):
    archive = archive_of(tmp_path, a="x" * 600)
    size = (600).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(size, (5).to_bytes(4, "little")))
    assert "cannot be read as a zip archive" in problem_of(archive, tmp_path / "to")


def test_damaged_archives_are_reported(tmp_path):
    whole = archive_of(tmp_path, a="a text that is long enough to be damaged").read_bytes()
    damaged = tmp_path / "damaged.zip"
    for content in (b"<html>sign in</html>", whole[:-20], whole.replace(whole[40:44], b"....")):
        damaged.write_bytes(content)
        assert f"{damaged}: cannot be read as a zip archive" in problem_of(damaged, tmp_path / "to")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damage_of_other_compressions_is_reported(tmp_path, method):
    path = tmp_path / "given.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", "text" * 1000)
    # The name ends at byte 31, and the first 9 bytes of the content describe the compression.
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\xff" * 20 + content[60:])
    assert "cannot be read as a zip archive" in problem_of(path, tmp_path / "to")


def test_names_that_are_not_unicode_are_reported(tmp_path):
    path = archive_of(tmp_path, **{"é": "text"})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))
    assert "Delete it to fetch it again." in problem_of(path, tmp_path / "to")


def test_two_files_for_one_path_are_rejected(tmp_path):
    archive = archive_of(tmp_path, one__a="text", two__a="text", three__a="other")
    assert "'one/a' and 'three/a' would both be extracted to" in problem_of(
        archive, tmp_path / "to", lambda path: Path("a")
    )


def test_unwritable_folders_are_reported(tmp_path):
    (tmp_path / "to").write_text("a file")
    with pytest.raises(DataError, match=r"cannot be extracted \(Not a directory\)|\(File exists\)"):
        extract(archive_of(tmp_path, dev__a="text"), tmp_path / "to", everything)
