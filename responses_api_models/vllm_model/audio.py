"""Add audio to a request's last user message. The request's `metadata` contains the audio or names its files."""

import asyncio
import binascii
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import orjson

from nemo_gym import InvalidTask
from nemo_gym.dialects.chat_parts import is_of_media
from nemo_gym.jsonl import JsonObject

KEYS = ("audio_data", "audio_path", "audio_paths")
LARGEST_BYTES = 20 * 1024 * 1024
"""The size limit of all audio in a request, in bytes."""
SUFFIXES = {".wav": "wav", ".mp3": "mp3", ".flac": "flac"}
MEDIA_TYPES = {"wav": "wav", "x-wav": "wav", "wave": "wav", "mpeg": "mp3", "mp3": "mp3", "flac": "flac"}
MEDIA_TYPES["x-flac"] = "flac"
SIGNATURES = ((b"RIFF", "wav"), (b"fLaC", "flac"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"\xff\xf3", "mp3"))
"""The first bytes of audio files, from which the format is detected."""
STANDARD = ("wav", "mp3")
"""The formats of OpenAI's `input_audio` parts. vLLM accepts others only as `audio_url`."""

_DATA_URL = re.compile(r"data:audio/([a-z0-9.+-]+);base64,", re.IGNORECASE)


async def with_audio(messages: list[JsonObject], metadata: Mapping[str, str], folder: Path | None) -> list[JsonObject]:
    """Return messages with the metadata's audio at the end of the user's last message.

    Paths are relative to `folder`. Raise `InvalidTask` if the audio cannot be sent.
    """
    if not any(key in metadata for key in KEYS):
        return messages
    place = _last_of_user(messages)
    if place is None:
        raise InvalidTask(
            "metadata: audio is added to the last user message, but the input has no user message. Add a user message."
        )
    parts = await asyncio.to_thread(_parts, metadata, folder)
    content = messages[place].get("content") or []
    before = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*messages[:place], {**messages[place], "content": [*before, *parts]}, *messages[place + 1 :]]


def _last_of_user(messages: list[JsonObject]) -> int | None:
    """Return the index of the user's last message. Skip messages that contain only the media of tool outputs."""
    places = [
        place
        for place, (before, message) in enumerate(pairwise([{}, *messages]))
        if message.get("role") == "user" and not (before.get("role") == "tool" and is_of_media(message))
    ]
    return places[-1] if places else None


class _Recording(NamedTuple):
    format: str
    data: str
    """The content of the file as base64."""

    def part(self) -> JsonObject:
        """Return the recording as a content part of Chat Completions."""
        if self.format in STANDARD:
            return {"type": "input_audio", "input_audio": self._asdict()}
        return {"type": "audio_url", "audio_url": {"url": f"data:audio/{self.format};base64,{self.data}"}}


def _parts(metadata: Mapping[str, str], folder: Path | None) -> list[JsonObject]:
    parts, size = [], 0
    for recording in _recordings(metadata, folder):
        size += _size_of(recording.data)
        if size > LARGEST_BYTES:
            raise InvalidTask(f"metadata: the audio has more than {LARGEST_BYTES} bytes. Shorten or compress it.")
        parts.append(recording.part())
    return parts


def _recordings(metadata: Mapping[str, str], folder: Path | None) -> Iterator[_Recording]:
    if "audio_data" in metadata:
        yield _given(metadata["audio_data"])
    for key, path in _paths(metadata):
        yield _read(key, path, folder)


def _paths(metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each path with the metadata key that names it."""
    if "audio_path" in metadata:
        yield "audio_path", metadata["audio_path"]
    if "audio_paths" in metadata:
        try:
            paths = orjson.loads(metadata["audio_paths"])
        except ValueError:
            paths = None
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise InvalidTask('metadata.audio_paths must be a JSON list of paths, such as ["a.wav", "b.wav"].')
        yield from (("audio_paths", path) for path in paths)


def _given(value: str) -> _Recording:
    """Parse a recording from base64 data or from a data URL."""
    header = _DATA_URL.match(value)
    data = value[header.end() :] if header else value
    if (size := _size_of(data)) > LARGEST_BYTES:
        raise _too_large("audio_data", "the recording", size)
    try:
        start = b64decode(data, validate=True)[:4]
    except (binascii.Error, ValueError) as error:
        raise InvalidTask(
            f"metadata.audio_data is neither base64 nor a data URL of audio in base64: {error}."
        ) from error
    if not start:
        raise InvalidTask("metadata.audio_data is empty. Set it to a recording in base64, or remove it.")
    if header:
        format_ = MEDIA_TYPES.get(header[1].lower())
    else:
        format_ = next((name for signature, name in SIGNATURES if start.startswith(signature)), None)
    if format_ is None:
        raise InvalidTask("metadata.audio_data is not WAV, MP3 or FLAC. Convert it, or name its type in a data URL.")
    return _Recording(format_, data)


def _read(key: str, path: str, folder: Path | None) -> _Recording:
    if folder is None:
        raise InvalidTask(
            f"metadata.{key} names '{path}', but this server does not read files. Set its 'audio_root' to the folder "
            "that holds them, or send audio_data."
        )
    format_ = SUFFIXES.get(Path(path).suffix.lower())
    if format_ is None:
        raise InvalidTask(f"metadata.{key}: '{path}' must end in one of {', '.join(SUFFIXES)}. Convert the file.")
    try:
        data = _content(folder, key, path)
    except (OSError, ValueError) as error:
        raise InvalidTask(
            f"metadata.{key}: '{path}' in audio_root cannot be read ({error}). Check the path and the permissions."
        ) from error
    return _Recording(format_, b64encode(data).decode("ascii"))


def _content(folder: Path, key: str, path: str) -> bytes:
    # Reject paths outside the folder, because a row of unknown origin must not send other files to an endpoint.
    named = PurePosixPath(path)
    if named.is_absolute() or ".." in named.parts:
        raise InvalidTask(f"metadata.{key}: '{path}' must be a path below audio_root, without a leading '/' or '..'.")
    file = Path(os.path.realpath(folder / path))
    if not file.is_relative_to(folder.resolve()):
        raise InvalidTask(
            f"metadata.{key}: '{path}' leads outside audio_root through a link. Copy the file into audio_root."
        )
    if not file.is_file():
        raise InvalidTask(f"metadata.{key}: file '{path}' not found in audio_root. Check the path.")
    if (size := file.stat().st_size) > LARGEST_BYTES:
        raise _too_large(key, f"'{path}'", size)
    if not size:
        raise InvalidTask(f"metadata.{key}: '{path}' is empty. Replace it with a recording.")
    return file.read_bytes()


def _size_of(data: str) -> int:
    """Return the decoded size of base64 data. It is up to two bytes too large, because padding is not subtracted."""
    return len(data) * 3 // 4


def _too_large(key: str, what: str, size: int) -> InvalidTask:
    return InvalidTask(f"metadata.{key}: {what} has {size} bytes, more than {LARGEST_BYTES}. Shorten or compress it.")
