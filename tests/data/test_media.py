"""Images and sounds that rows name as files."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.data import media
from nemo_gym.data.media import check_embedded, with_empty_media, with_media, with_media_dir
from nemo_gym.errors import DataError, InvalidTask
from nemo_gym.schemas.row import MEDIA_DIR_KEY
from tests.each_case import each_case

PNG = b"\x89PNG\r\n\x1a\n and pixels"
WAV = b"RIFF\x04\0\0\0WAVE"


def row_of(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": "What is this?"}, *parts]
    messages = [{"role": "system", "content": "Look."}, {"role": "user", "content": content}]
    return {"responses_create_params": {"input": messages, "tools": []}, "answer": "7", **fields}


def image(path: object) -> dict[str, Any]:
    return {"type": "input_image", "image_path": path, "detail": "high"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "set" / "images").mkdir(parents=True)
    (tmp_path / "set" / "images" / "a.PNG").write_bytes(PNG)
    (tmp_path / "set" / "b.wav").write_bytes(WAV)
    (tmp_path / "secret.png").write_bytes(b"private")
    return tmp_path / "set"


def test_named_files_become_data(folder: Path) -> None:
    given = row_of(image("images/a.PNG"), {"type": "input_audio", "audio_path": "b.wav"})
    sent = with_media(with_media_dir(given, folder))
    _, first, second = sent["responses_create_params"]["input"][1]["content"]
    assert first == {
        "type": "input_image", "detail": "high", "image_url": f"data:image/png;base64,{b64encode(PNG).decode()}"
    }  # fmt: skip
    assert second == {"type": "input_audio", "input_audio": {"data": b64encode(WAV).decode(), "format": "wav"}}
    assert sent == {**given, "responses_create_params": sent["responses_create_params"]}
    assert given["responses_create_params"]["input"][1]["content"][1] == image("images/a.PNG")


def test_checked_files_are_not_read(folder: Path) -> None:
    checked = with_empty_media(with_media_dir(row_of(image("images/a.PNG")), folder))
    assert checked["responses_create_params"]["input"][1]["content"][1]["image_url"] == "data:image/png;base64,"


def test_rows_without_files_stay_the_same() -> None:
    for row in (
        row_of({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
        row_of({"type": "input_text", "image_path": "a.png", "text": ""}),
        {"responses_create_params": {"input": "image_path"}},
        {"responses_create_params": None},
        {"image_path": "a.png"},
        {"responses_create_params": {"input": [1, {"content": [2]}, {"content": "text"}]}},
    ):
        assert with_media(with_media_dir(row, Path("/nowhere"))) is row


def test_folder_in_row_is_not_trusted(folder: Path) -> None:
    assert with_media_dir(row_of(image("a.png"), **{MEDIA_DIR_KEY: "/"}), folder)[MEDIA_DIR_KEY] == str(folder)
    assert MEDIA_DIR_KEY not in with_media_dir(row_of(**{MEDIA_DIR_KEY: "/"}), folder)


def test_unusable_files_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "LARGEST_BYTES", len(PNG))
    (folder / "large.png").write_bytes(PNG + b"!")
    (folder / "empty.jpg").touch()
    (folder / "link.png").symlink_to(folder.parent / "secret.png")
    (folder / "notes.txt").write_text("a text", "utf-8")
    (folder / "folder.png").mkdir()
    outside = f"is not in the dataset's folder {folder}. Use a path relative to it."
    (folder / "text.png").write_text("a text", "utf-8")
    (folder / "photo.jpg").write_bytes(PNG)
    (folder / "loop.png").symlink_to(folder / "loop.png")
    for path, problem in {
        "text.png": "'text.png' does not contain PNG. Convert it, or correct its name.",
        "photo.jpg": "'photo.jpg' does not contain JPEG. Convert it, or correct its name.",
        "large.png": "'large.png' has 20 bytes, more than 19. Make it smaller.",
        "empty.jpg": "'empty.jpg' is empty.",
        "missing.png": f"file 'missing.png' not found in the dataset's folder {folder}.",
        "loop.png": f"file 'loop.png' not found in the dataset's folder {folder}.",
        "folder.png": f"file 'folder.png' not found in the dataset's folder {folder}.",
        "notes.txt": "'notes.txt' has an unknown format. Use one of: .png, .jpg, .jpeg, .gif, .webp.",
        "../secret.png": f"'../secret.png' {outside}",
        "link.png": f"'link.png' is not in the dataset's folder {folder}. Replace the link with a copy of its target.",
        str(folder / "images" / "a.PNG"): f"'{folder}/images/a.PNG' {outside}",
    }.items():
        row = with_media_dir(row_of(image(path)), folder)
        for convert in (with_media, with_empty_media):
            with pytest.raises(DataError) as error:
                convert(row)
            place = "responses_create_params.input[1].content[1].image_path: "
            assert str(error.value) == place + problem
    for path in ("a\0.png", "n" * 300 + ".png", "\ud800.png"):
        with pytest.raises(DataError, match=r"image_path: .*'.*' (cannot be read \(|(is not|not found) in the)"):
            with_media(with_media_dir(row_of(image(path)), folder))
    with pytest.raises(DataError, match=r"image_path must be the path of a file, but is a URL\. Use image_url\."):
        with_media(with_media_dir(row_of(image("https://localhost/a.png")), folder))
    for path in (None, 7, ""):
        with pytest.raises(DataError, match="image_path must be the path of a file, found"):
            with_media(with_media_dir(row_of(image(path)), folder))


def test_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: Path) -> bytes:
        raise PermissionError(13, "Permission denied", file)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(
        DataError, match=r"image_path: .*a\.PNG' cannot be read \(Permission denied\)\. Make it readable\."
    ):
        with_media(with_media_dir(row_of(image("images/a.PNG")), folder))


def test_parts_without_usable_data_are_rejected(folder: Path) -> None:
    place = "responses_create_params.input[1].content[1]"
    for part, problem in (
        (
            {"type": "input_image", "image_pth": "images/a.PNG"},
            f"{place} is of type 'input_image', but has no 'image_path' or 'image_url' or 'file_id'. "
            "Is 'image_pth' a misspelling of 'image_path'?",
        ),
        (
            {"type": "input_text", "text": "", "audio_path": "b.wav"},
            f"{place}.audio_path belongs in a part of type 'input_audio'.",
        ),
        (
            {**image("images/a.PNG"), "image_url": "data:image/png;base64,AAAA"},
            f"{place} has both 'image_path' and 'image_url'. Remove one of them.",
        ),
    ):
        with pytest.raises(DataError) as error:
            with_empty_media(with_media_dir(row_of(part), folder))
        assert str(error.value) == problem


@each_case(
    ("part", "advice"),
    [
        ({"type": "input_image", "image_url": "red.png"}, "For a file, use image_path."),
        ({"type": "input_image", "image_url": "file:///srv/red.png", "file_id": "x"}, "For a file, use image_path."),
        ({"type": "input_image", "image_url": ""}, "For a file, use image_path."),
        ({"type": "input_image", "image_url": "//host/red.png"}, "For a file, use image_path."),
        ({"type": "input_image", "image_url": "C:\\red.png"}, "For a file, use image_path."),
        ({"type": "input_video", "video_url": "a.mp4"}, "Serve the file at an address, or embed it."),
        ({"type": "input_video", "video_url": {"url": "a.mp4"}}, "Serve the file at an address, or embed it."),
        ({"type": "input_file", "file_url": "a.pdf"}, "For a file, put its content into file_data."),
    ],
)
def test_addresses_that_are_not_urls_are_rejected(part: dict[str, Any], advice: str) -> None:
    key = next(key for key in part if key.endswith("_url"))
    begins = f"{key} must begin with http:, https: or data:, found '"
    with pytest.raises(DataError) as error:
        with_empty_media(row_of(part))
    assert str(error.value).startswith(f"responses_create_params.input[1].content[1].{begins}")
    assert str(error.value).endswith(f"'. {advice}")
    result = {"type": "function_call_output", "call_id": "1", "output": [part]}
    with pytest.raises(InvalidTask) as refused:
        check_embedded({"responses_create_params": {"input": [result]}}, "rows[3]")
    assert str(refused.value).startswith(f"rows[3]: responses_create_params.input[0].output[0].{begins}")


@each_case("url", ["https://host/red.png", "HTTP://host/red.png", "data:image/png;base64,AAAA"])
def test_addresses_that_are_urls_are_accepted(url: str) -> None:
    row = row_of({"type": "input_image", "image_url": url})
    check_embedded(row, "rows[3]")
    assert with_empty_media(row) is row


def test_file_of_an_earlier_tool_result_becomes_data(folder: Path) -> None:
    result = {"type": "function_call_output", "call_id": "1", "output": [image("images/a.PNG")]}
    row = with_media_dir({"responses_create_params": {"input": [result]}}, folder)
    (part,) = with_media(row)["responses_create_params"]["input"][0]["output"]
    assert part["image_url"] == f"data:image/png;base64,{b64encode(PNG).decode()}"


def test_rows_of_programs_must_not_name_files(folder: Path) -> None:
    row = row_of(image("images/a.PNG"))
    check_embedded(with_media(with_media_dir(row, folder)), "rows[3]")
    for given in (row, with_media_dir(row, folder)):
        with pytest.raises(InvalidTask, match=r"rows\[3\]: responses_create_params.*image_path names a file"):
            check_embedded(given, "rows[3]")


def test_row_of_unknown_folder_is_rejected() -> None:
    with pytest.raises(DataError, match="the folder of its dataset is unknown"):
        with_media(row_of(image("a.png")))


def test_content_survives_encoding(folder: Path) -> None:
    every_byte = PNG + bytes(range(256)) * 3
    (folder / "all.png").write_bytes(every_byte)
    sent = with_media(with_media_dir(row_of(image("all.png")), folder))
    url = sent["responses_create_params"]["input"][1]["content"][1]["image_url"]
    assert b64decode(url.partition(",")[2], validate=True) == every_byte
