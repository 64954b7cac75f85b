"""Settings for recording the model calls of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError

ENABLED_KEY = "observability_enabled"
CAPTURE_DIR_KEY = "model_call_capture_dir"
CAPTURE_KEYS = (ENABLED_KEY, CAPTURE_DIR_KEY)


class ModelCallCaptureConfig(BaseModel):
    """The two top-level settings for the recording of model calls."""

    model_config = ConfigDict(frozen=True)

    observability_enabled: bool = False
    model_call_capture_dir: Path | None = None
    """The folder of the records. The path is absolute, because each server runs in its own folder."""

    @property
    def store_dir(self) -> Path | None:
        """The folder of the records, or None if recording is off."""
        return self.model_call_capture_dir if self.observability_enabled else None

    @classmethod
    def of(cls, config: Mapping[str, object] | None) -> Self:
        """Read the keys from `config`. Raise `ConfigError` if recording is enabled without a valid folder."""
        if config is None or not is_enabled(config):
            return cls()
        folder = config.get(CAPTURE_DIR_KEY)
        if problem := _problem(True, folder):
            raise ConfigError(problem)
        return cls(observability_enabled=True, model_call_capture_dir=Path(str(folder)).expanduser())


def is_enabled(config: Mapping[str, object] | None) -> bool:
    """Return whether a configuration enables recording."""
    return config is not None and config.get(ENABLED_KEY) is True


def check_capture(values: Mapping[str, object], places: Mapping[str, Origin]) -> None:
    """Raise `ConfigError` if the recording settings are invalid."""
    if problem := _problem(values.get(ENABLED_KEY, False), values.get(CAPTURE_DIR_KEY)):
        key = ENABLED_KEY if problem.startswith(ENABLED_KEY) else CAPTURE_DIR_KEY
        raise ConfigError(f"{places[key]}: {problem}")


def _problem(enabled: object, folder: object) -> str | None:
    if not isinstance(enabled, bool):
        return f"{ENABLED_KEY} must be true or false, but is {enabled!r}."
    if not enabled:
        return None
    if folder is None:
        return (
            f"{ENABLED_KEY} is true, but {CAPTURE_DIR_KEY} is not set. Add "
            f"--{CAPTURE_DIR_KEY} /an/absolute/folder, or remove {ENABLED_KEY}."
        )
    if not isinstance(folder, str | Path) or not Path(folder).expanduser().is_absolute():
        return (
            f"{CAPTURE_DIR_KEY} must be an absolute path, because each server runs in its own folder, but is "
            f"{str(folder)!r}. Write {str(Path.cwd() / str(folder))!r}."
        )
    if Path(folder).exists() and not Path(folder).is_dir():
        return f"{CAPTURE_DIR_KEY} must be a folder, but {folder} is a file."
    return None
