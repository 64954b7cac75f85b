"""Replace the names of image and audio files in a dataset's rows with the content of the files, for the model.

A content part names its file as `image_path` or `audio_path`, relative to the dataset's folder. The files are read
only when the row is sent, so the row stays small in every file of a run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import DataError, InvalidTask
from nemo_gym.jsonl import JsonObject
from nemo_gym.paths import resolved
from nemo_gym.schemas.row import MEDIA_DIR_KEY, Row
from nemo_gym.text import closest, counted

LARGEST_BYTES = 20 * 1024 * 1024
"""The size limit of a file, because hosted endpoints do not accept larger files."""

Convert = Callable[[str, str], Mapping[str, object]]


def _image(subtype: str, data: str) -> Mapping[str, object]:
    return {"image_url": f"data:image/{subtype};base64,{data}"}


def _audio(format_: str, data: str) -> Mapping[str, object]:
    return {"input_audio": {"data": data, "format": format_}}


class _Kind(NamedTuple):
    part_type: str
    data_keys: tuple[str, ...]
    """The fields of a part that contain its data or a reference to the data."""
    formats: dict[str, str]
    """The format for each file extension."""
    converted: Convert


_KINDS = {
    "image_path": _Kind(
        "input_image",
        ("image_url", "file_id"),
        {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"},
        _image,
    ),
    "audio_path": _Kind("input_audio", ("input_audio",), {".wav": "wav", ".mp3": "mp3"}, _audio),
}
_URLS = {
    "image_url": "For a file, use image_path.",
    "video_url": "Serve the file at an address, or embed it.",
    "file_url": "For a file, put its content into file_data.",
}
"""The fields of parts that contain a URL, and the advice if one contains something else."""
IS_URL = re.compile(r"(https?|data):", re.IGNORECASE)
"""Matches an address that an endpoint can load."""
_BEGINNINGS = {
    "png": rb"\x89PNG\r\n\x1a\n",
    "jpeg": rb"\xff\xd8\xff",
    "gif": rb"GIF8",
    "webp": rb"RIFF....WEBP",
    "wav": rb"RIFF....WAVE",
    "mp3": rb"ID3|\xff[\xe2-\xff]",
}
"""A regular expression for the first bytes of the files of each format."""
_LONGEST_BEGINNING = 12
_LONGEST_SHOWN = 80


def with_media_dir(row: JsonObject, folder: Path) -> JsonObject:
    """Add the dataset's folder to a row that names files, because their paths are relative to this folder.

    A folder that the row itself gives is replaced or removed, because a dataset must not choose the folder.
    """
    if next(_places(row), None) is not None:
        return {**row, MEDIA_DIR_KEY: str(folder)}
    return {key: value for key, value in row.items() if key != MEDIA_DIR_KEY} if MEDIA_DIR_KEY in row else row


def with_media(row: JsonObject) -> JsonObject:
    """Return a row with the content of its files in place of their names. `with_media_dir` must have set the folder.

    Raise `DataError` if a file cannot be sent.
    """
    return _converted(row, Path.read_bytes)


def with_empty_media(row: JsonObject) -> JsonObject:
    """Do the same as `with_media`, but check the files without reading them in full, and insert empty content.

    Also raise `DataError` for a part that has neither data nor a file, for example because of a misspelled key, and
    for an address that is not a URL that an endpoint can load.
    """
    for place in _parts(row):
        _check_part(place)
    return _converted(row, lambda file: b"")


def check_embedded(row: Mapping[str, object], name: str) -> None:
    """Raise `InvalidTask` if a row names files, because rows that a program passes have no folder for relative paths.

    Also raise it for an address that is not a URL that an endpoint can load.

    `name` is the row's name in the message.
    """
    if (place := next(_places(row), None)) is not None:
        raise InvalidTask(
            f"{name}: {place} names a file. Pass rows with files through with_media(with_media_dir(row, folder)) of "
            "nemo_gym.data.media first."
        )
    for part in _parts(row):
        if problem := _url_problem(part):
            raise InvalidTask(f"{name}: {problem}")


def _converted(row: JsonObject, read: Callable[[Path], bytes]) -> JsonObject:
    places = list(_places(row))
    if not places:
        return row
    folder = _folder_of(row)
    params = row["responses_create_params"]
    items = list(params["input"])
    for place in places:
        item, field, number, _ = place.part
        parts = [*items[item][field]]
        parts[number] = _converted_part(place, folder, read)
        items[item] = {**items[item], field: parts}
    sent = {**row, "responses_create_params": {**params, "input": items}}
    del sent[MEDIA_DIR_KEY]
    return sent


def _converted_part(place: _Place, folder: Path, read: Callable[[Path], bytes]) -> Mapping[str, object]:
    kind, file = _KINDS[place.key], _file_of(place, folder)
    try:
        data = b64encode(read(file)).decode("ascii")
    except OSError as error:
        raise DataError(f"{place}: '{place.path}' cannot be read ({error.strerror}). Make it readable.") from error
    rest = {key: value for key, value in place.part.fields.items() if key != place.key}
    return {**rest, **kind.converted(kind.formats[file.suffix.lower()], data)}


class _Part(NamedTuple):
    """A content part of a row."""

    item: int
    field: str
    """The field of the item: `content` of a message, or `output` of a tool."""
    number: int
    fields: Mapping[str, object]

    def __str__(self) -> str:
        return f"responses_create_params.input[{self.item}].{self.field}[{self.number}]"


class _Place(NamedTuple):
    """A content part that names a file, the key of the file's path, and the path."""

    part: _Part
    key: str
    path: object

    def __str__(self) -> str:
        return f"{self.part}.{self.key}"


def _parts(row: Mapping[str, object]) -> Iterator[_Part]:
    params = row.get("responses_create_params")
    items = params.get("input") if isinstance(params, dict) else None
    for item, fields in enumerate(items if isinstance(items, list) else ()):
        for field in ("content", "output") if isinstance(fields, dict) else ():
            parts = fields.get(field)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    yield _Part(item, field, number, part)


def _places(row: Mapping[str, object]) -> Iterator[_Place]:
    for part in _parts(row):
        for key, kind in _KINDS.items():
            if key in part.fields and part.fields.get("type") == kind.part_type:
                yield _Place(part, key, part.fields[key])


def _check_part(part: _Part) -> None:
    """Raise `DataError` if a part has no data, has data twice, or names a file of another kind."""
    for key, kind in _KINDS.items():
        has_data = [name for name in kind.data_keys if part.fields.get(name) is not None]
        if part.fields.get("type") != kind.part_type:
            if key in part.fields:
                raise DataError(f"{part}.{key} belongs in a part of type '{kind.part_type}'.")
        elif key in part.fields and has_data:
            raise DataError(f"{part} has both '{key}' and '{has_data[0]}'. Remove one of them.")
        elif key not in part.fields and not has_data:
            wanted = " or ".join(f"'{name}'" for name in (key, *kind.data_keys))
            raise DataError(f"{part} is of type '{kind.part_type}', but has no {wanted}.{_close(key, part.fields)}")

    if problem := _url_problem(part):
        raise DataError(problem)


def _url_problem(part: _Part) -> str | None:
    for key, advice in _URLS.items():
        given = part.fields.get(key)
        url = given.get("url") if isinstance(given, dict) else given
        # An endpoint that loads files would send those of its own machine, and others report no error.
        if isinstance(url, str) and not IS_URL.match(url):
            return f"{part}.{key} must begin with http:, https: or data:, found {url[:_LONGEST_SHOWN]!r}. {advice}"
    return None


def _close(key: str, fields: Mapping[str, object]) -> str:
    written = closest(key, fields)
    return f" Is '{written}' a misspelling of '{key}'?" if written else ""


def _folder_of(row: JsonObject) -> Path:
    folder = Row(row).media_dir
    if not folder:
        raise DataError(
            "the row names a file, but the folder of its dataset is unknown. Pass the row through "
            "nemo_gym.data.media.with_media_dir(row, folder) first."
        )
    return Path(folder)


def _file_of(place: _Place, folder: Path) -> Path:
    """Return the file that a part names. Raise `DataError` if it is missing, too large or not in the folder."""
    path = place.path
    if not isinstance(path, str) or not path:
        raise DataError(f"{place} must be the path of a file, found {path!r}.")
    if "://" in path or path.startswith("data:"):
        raise DataError(f"{place} must be the path of a file, but is a URL. Use {_KINDS[place.key].data_keys[0]}.")
    try:
        return _checked_file(place, path, folder)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: {path!r} cannot be read ({error}). Correct the path.") from error


def _checked_file(place: _Place, path: str, folder: Path) -> Path:
    formats = _KINDS[place.key].formats
    file = folder / path
    # Reject files outside the folder, because a malicious dataset must not send other files to an endpoint.
    if Path(path).is_absolute() or not resolved(file).is_relative_to(resolved(folder)):
        leads_out = not Path(path).is_absolute() and ".." not in Path(path).parts
        advice = "Replace the link with a copy of its target." if leads_out else "Use a path relative to it."
        raise DataError(f"{place}: '{path}' is not in the dataset's folder {folder}. {advice}")
    if (format_ := formats.get(file.suffix.lower())) is None:
        raise DataError(f"{place}: '{path}' has an unknown format. Use one of: {', '.join(formats)}.")
    if not file.is_file():
        raise DataError(f"{place}: file '{path}' not found in the dataset's folder {folder}.")
    if (size := file.stat().st_size) > LARGEST_BYTES:
        raise DataError(f"{place}: '{path}' has {counted(size, 'byte')}, more than {LARGEST_BYTES}. Make it smaller.")
    if not size:
        raise DataError(f"{place}: '{path}' is empty.")
    with file.open("rb") as opened:
        if not re.match(_BEGINNINGS[format_], opened.read(_LONGEST_BEGINNING), re.DOTALL):
            raise DataError(f"{place}: '{path}' does not contain {format_.upper()}. Convert it, or correct its name.")
    return file
