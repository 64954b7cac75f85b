"""The image and audio files of generated rows, in a folder next to the file of rows."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

from nemo_gym.errors import DataError
from nemo_gym.jsonl import replacing

Media = Literal["images", "audio"]
MEDIA: tuple[Media, ...] = ("images", "audio")
_OWN_NAME = re.compile(r"\w+_[0-9a-f]{16}\.\w+", re.ASCII)


class MediaFiles:
    """The image or audio files of a file of rows. Those of `rows.jsonl` are in `rows_images` or `rows_audio`.

    A file's name contains a hash of its content. So a rerun never changes a file to which earlier rows refer.
    """

    def __init__(self, output: Path, media: Media) -> None:
        self._folder = media_folder(output, media)
        self._saved: set[str] = set()

    def save(self, data: bytes, prefix: str, extension: str) -> str:
        """Save a file and return the path to put into the row. Raise `DataError` if it cannot be written."""
        name = f"{prefix}_{hashlib.sha256(data).hexdigest()[:16]}.{extension}"
        self._saved.add(name)
        file = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not file.is_file() or file.read_bytes() != data:
                with replacing(file) as partial:
                    partial.write_bytes(data)
        except OSError as error:
            raise DataError(f"{file}: cannot be written ({error.strerror}). Check the path.") from error
        return f"{self._folder.name}/{name}"

    def remove_unused(self) -> None:
        """Remove the files of earlier runs that were not saved again. Call it after the rows are written."""
        for file in self._folder.glob("*"):
            if file.name not in self._saved and _OWN_NAME.fullmatch(file.name):
                file.unlink(missing_ok=True)


def media_folder(output: Path, media: Media) -> Path:
    """Return the folder for the media files of a file of rows."""
    return output.with_name(f"{output.stem}_{media}")
