"""Images and sounds that the rows of a dataset name as files, and that a model receives as data.

A content part names its file as `image_path` or `audio_path`, relative to the dataset's folder. Such a row stays small
in every file of a run; its files are read when it is sent.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.wording import counted
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import MEDIA_DIR_KEY, PARAMS_KEY

LARGEST_BYTES = 20 * 1024 * 1024
"""The size limit of a file. Hosted endpoints accept no larger ones."""

Convert = Callable[[str, str], JsonObject]


def _image(subtype: str, data: str) -> JsonObject:
    return {"image_url": f"data:image/{subtype};base64,{data}"}


def _audio(format_: str, data: str) -> JsonObject:
    return {"input_audio": {"data": data, "format": format_}}


class _Kind(NamedTuple):
    part_type: str
    formats: dict[str, str]
    """The name of each file extension's format."""
    converted: Convert


_KINDS = {
    "image_path": _Kind(
        "input_image", {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}, _image
    ),
    "audio_path": _Kind("input_audio", {".wav": "wav", ".mp3": "mp3"}, _audio),
}


def with_media_dir(row: JsonObject, folder: Path) -> JsonObject:
    """Return a row with the folder of the files that it names. A row that names none is returned as it is.

    The row's own statement of that folder is not trusted.
    """
    if next(_places(row), None) is not None:
        return {**row, MEDIA_DIR_KEY: str(folder)}
    return {key: value for key, value in row.items() if key != MEDIA_DIR_KEY} if MEDIA_DIR_KEY in row else row


def with_media(row: JsonObject) -> JsonObject:
    """Return a row of `with_media_dir` with the content of its files in place of their names.

    Raise `DataError` if a file cannot be sent.
    """
    return _converted(row, Path.read_bytes)


def with_empty_media(row: JsonObject) -> JsonObject:
    """Check the files of a row like `with_media`, but do not read them: their content is empty in the result."""
    return _converted(row, lambda file: b"")


def _converted(row: JsonObject, read: Callable[[Path], bytes]) -> JsonObject:
    places = list(_places(row))
    if not places:
        return row
    folder = _folder_of(row)
    params = row[PARAMS_KEY]
    items = list(params["input"])
    for place in places:
        content = [*items[place.item]["content"]]
        content[place.part] = _converted_part(place, content[place.part], folder, read)
        items[place.item] = {**items[place.item], "content": content}
    sent = {**row, PARAMS_KEY: {**params, "input": items}}
    del sent[MEDIA_DIR_KEY]
    return sent


def _converted_part(place: _Place, part: JsonObject, folder: Path, read: Callable[[Path], bytes]) -> JsonObject:
    kind, file = _KINDS[place.key], _file_of(place, folder)
    try:
        data = b64encode(read(file)).decode("ascii")
    except OSError as error:
        raise DataError(f"{place}: {file} cannot be read ({error.strerror}).") from error
    rest = {key: value for key, value in part.items() if key != place.key}
    return {**rest, **kind.converted(kind.formats[file.suffix.lower()], data)}


class _Place(NamedTuple):
    """A part that names a file."""

    item: int
    part: int
    key: str
    path: object

    def __str__(self) -> str:
        return f"{PARAMS_KEY}.input[{self.item}].content[{self.part}].{self.key}"


def _places(row: JsonObject) -> Iterator[_Place]:
    params = row.get(PARAMS_KEY)
    items = params.get("input") if isinstance(params, dict) else None
    for number, item in enumerate(items if isinstance(items, list) else ()):
        content = item.get("content") if isinstance(item, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                for key, kind in _KINDS.items():
                    if key in part and part.get("type") == kind.part_type:
                        yield _Place(number, place, key, part[key])


def _folder_of(row: JsonObject) -> Path:
    folder = row.get(MEDIA_DIR_KEY)
    if not folder:
        raise DataError(
            "the row names a file, but the folder of its dataset is unknown. Pass the row through "
            "nemo_gym.data.media.with_media_dir(row, folder) first."
        )
    return Path(folder)


def _file_of(place: _Place, folder: Path) -> Path:
    """Return the file that a part names. Raise `DataError` if it is missing, too large or not in the folder."""
    formats = _KINDS[place.key].formats
    path = place.path
    if not isinstance(path, str) or not path:
        raise DataError(f"{place} must be the path of a file, found {path!r}.")
    file = folder / path
    # A dataset of unknown origin must not send other files of this machine to an endpoint.
    if Path(path).is_absolute() or not file.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{place}: '{path}' is not in the dataset's folder {folder}. Use a path relative to it.")
    if file.suffix.lower() not in formats:
        raise DataError(f"{place}: '{path}' has an unknown format. Use one of: {', '.join(formats)}.")
    if not file.is_file():
        raise DataError(f"{place}: file '{path}' not found in the dataset's folder {folder}.")
    if (size := file.stat().st_size) > LARGEST_BYTES:
        raise DataError(f"{place}: '{path}' has {counted(size, 'byte')}, more than {LARGEST_BYTES}. Make it smaller.")
    if not size:
        raise DataError(f"{place}: '{path}' is empty.")
    return file
