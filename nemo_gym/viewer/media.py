"""Images and sounds in conversations: data in the record, or files in the folder of the row's dataset.

Nothing is loaded from other hosts, and only bytes that start like a known image or audio format are sent.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from nemo_gym import paths
from nemo_gym.data.media import with_media
from nemo_gym.errors import DataError
from nemo_gym.schemas.row import MEDIA_DIR_KEY
from nemo_gym.schemas.shapes import Part

Kind = Literal["image", "audio"]

_TYPES: Sequence[tuple[re.Pattern[bytes], str]] = [
    (re.compile(pattern, re.DOTALL), type_)
    for pattern, type_ in (
        (rb"\x89PNG\r\n\x1a\n", "image/png"), (rb"\xff\xd8\xff", "image/jpeg"), (rb"GIF8", "image/gif"),
        (rb"RIFF....WEBP", "image/webp"), (rb"RIFF....WAVE", "audio/wav"), (rb"ID3|\xff[\xe2-\xff]", "audio/mpeg"),
        (rb"OggS", "audio/ogg"), (rb"fLaC", "audio/flac"),
    )
]  # fmt: skip
"""The first bytes of each supported media type. SVG is not supported, because it can contain scripts."""
_PROBE = 64
"""The number of base64 characters to decode in order to recognize the media type."""
_DATA_URL = re.compile(r"data:([^;,]{0,100})[^,]{0,200};base64,", re.IGNORECASE)
# Use tuples instead of sets, because other programs may write an unhashable value, such as a list, as `type`.
_IMAGE_TYPES = ("input_image", "image_url", "image", "output_image", "computer_screenshot")
_AUDIO_TYPES = ("input_audio", "audio", "output_audio")
_FILE_KEYS: dict[Kind, str] = {"image": "image_path", "audio": "audio_path"}
LONGEST_NOTE = 300


class Medium(NamedTuple):
    content: bytes
    type: str


class Reference(NamedTuple):
    """The location of a part's content: base64 `data` in the part, or a `file`.

    If there is neither, `note` is a message with the reason.
    """

    data: str | None = None
    file: str | None = None
    note: str | None = None


def kind_of(part: Part) -> Kind | None:
    """Return the kind of a content part, or None if it is neither an image nor a sound."""
    type_ = part.get("type")
    if type_ in _IMAGE_TYPES:
        return "image"
    return "audio" if type_ in _AUDIO_TYPES else None


def reference_of(part: Part, kind: Kind) -> Reference:
    """Return the location of the image or sound in a content part."""
    if isinstance(file := part.get(_FILE_KEYS[kind]), str):
        return Reference(file=file, note=file[:LONGEST_NOTE])
    data = _data_in(part, kind)
    if data is None:
        return Reference(note=f"The {kind} is not in the record.{_elsewhere(part)}")
    if (found := _DATA_URL.match(data)) is not None:
        data = data[found.end() :]
    elif "://" in data[:LONGEST_NOTE]:
        return Reference(note=f"The {kind} is not loaded from its address: {data[:LONGEST_NOTE]}")
    type_ = _type_of(_decoded("".join(data[: 2 * _PROBE].split())[:_PROBE]) or b"")
    if type_ is None or not type_.startswith(kind):
        named = f" It is named {found[1][:LONGEST_NOTE]}." if found and found[1] else ""
        return Reference(note=f"The {kind} has a format that browsers cannot show safely.{named}")
    return Reference(data=data)


def content_of(part: Part, kind: Kind, row: Mapping[str, object], given_paths: Sequence[Path]) -> Medium:
    """Return the content of a part. Raise `DataError` if it cannot be shown.

    A file must be in the media folder of its row. This folder must be in one of the paths given to the viewer, in the
    working folder, or in a folder of environments.
    """
    reference = reference_of(part, kind)
    if reference.file is not None:
        reference = reference_of(_loaded(part, kind, row, given_paths), kind)
    content = _decoded(reference.data) if reference.data is not None else None
    type_ = _type_of(content) if content is not None else None
    if content is None or type_ is None:
        raise DataError(reference.note or f"The {kind} is not valid base64.")
    return Medium(content, type_)


def _loaded(part: Part, kind: Kind, row: Mapping[str, object], given_paths: Sequence[Path]) -> Part:
    folder = row.get(MEDIA_DIR_KEY)
    if not isinstance(folder, str) or not _is_open(Path(folder), given_paths):
        raise DataError(
            f"The {kind} is a file in the folder {str(folder)[:LONGEST_NOTE]}, which the viewer may not read. Pass "
            "this folder to ng view, too."
        )
    type_ = {"image": "input_image", "audio": "input_audio"}[kind]
    message = {"role": "user", "content": [{**part, "type": type_}]}
    # Let `with_media` read the file, because it rejects files outside the folder, and files that are too large.
    loaded = with_media({"responses_create_params": {"input": [message]}, MEDIA_DIR_KEY: folder})
    found: Part = loaded["responses_create_params"]["input"][0]["content"][0]
    return found


def _is_open(folder: Path, given_paths: Sequence[Path]) -> bool:
    try:
        found = paths.resolved(folder)
        folders = [path if path.is_dir() else path.parent for path in given_paths]
        return any(map(found.is_relative_to, map(paths.resolved, [*folders, Path.cwd(), *paths.search_roots()])))
    except (OSError, ValueError):
        return False


def _data_in(part: Part, kind: Kind) -> str | None:
    for key in ("image_url",) if kind == "image" else ("input_audio", "audio", "audio_url"):
        value = part.get(key)
        if isinstance(value, dict):
            value = value.get("url") or value.get("data")
        if isinstance(value, str):
            return value
    source = part.get("source")
    value = (source.get("data") or source.get("url")) if isinstance(source, dict) else part.get("data")
    return value if isinstance(value, str) else None


def _elsewhere(part: Part) -> str:
    file_id = part.get("file_id")
    return f" The endpoint has it as {str(file_id)[:LONGEST_NOTE]}." if file_id else ""


def _decoded(data: str) -> bytes | None:
    try:
        return b64decode(data)
    except (binascii.Error, ValueError):
        return None


def _type_of(content: bytes) -> str | None:
    return next((type_ for pattern, type_ in _TYPES if pattern.match(content)), None)
