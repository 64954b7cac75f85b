"""Whether the model calls of rollouts are recorded, and where to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError

logger = logging.getLogger(__name__)

ENABLED_KEY = "observability_enabled"
CAPTURE_DIR_KEY = "model_call_capture_dir"
TOKEN_CAPTURE_KEY = "token_id_capture"
CAPTURE_KEYS = (ENABLED_KEY, CAPTURE_DIR_KEY)


class ModelCallCaptureConfig(BaseModel):
    """The two top-level keys that turn the recording on."""

    model_config = ConfigDict(frozen=True)

    observability_enabled: bool = False
    model_call_capture_dir: Path | None = None
    """An absolute path, so that all servers mean the same folder; they run in folders of their own."""

    @property
    def store_dir(self) -> Path | None:
        """The folder of the records; None while nothing is recorded."""
        return self.model_call_capture_dir if self.observability_enabled else None

    @classmethod
    def of(cls, config: Any) -> Self:
        """What a configuration says, off where it says nothing. Raises `ConfigError` where it is on without a folder.

        It may be any stand-in for a configuration, as published tests hand it to a server: only a plain `true` counts.
        """
        if not is_enabled(config):
            return cls()
        folder = config.get(CAPTURE_DIR_KEY)
        if problem := _problem(True, folder):
            raise ConfigError(problem)
        return cls(observability_enabled=True, model_call_capture_dir=Path(folder))


def is_enabled(config: Any) -> bool:
    """Whether a configuration asks for records; False for a stand-in that says nothing clear."""
    return config is not None and config.get(ENABLED_KEY) is True


def warn_of_token_capture(values: Mapping[str, Any], places: Mapping[str, Origin]) -> None:
    """Say plainly that nothing comes of a `token_id_capture` block that is on."""
    block = values.get(TOKEN_CAPTURE_KEY)
    if isinstance(block, Mapping) and block.get("enabled") is True:
        logger.warning(
            "%s: token_id_capture.enabled is true, but there is no token capture here. Token ids come with the "
            "answers of a vllm_model whose return_token_id_information is true.",
            places[TOKEN_CAPTURE_KEY],
        )


def check_capture(values: Mapping[str, Any], places: Mapping[str, Origin]) -> None:
    """Raise `ConfigError` where the recording is asked for in a way that cannot work."""
    if problem := _problem(values.get(ENABLED_KEY, False), values.get(CAPTURE_DIR_KEY)):
        key = ENABLED_KEY if problem.startswith(ENABLED_KEY) else CAPTURE_DIR_KEY
        raise ConfigError(f"{places[key]}: {problem}")


def _problem(enabled: Any, folder: Any) -> str | None:
    if not isinstance(enabled, bool):
        return f"{ENABLED_KEY} has to be true or false, and is {enabled!r}."
    if not enabled:
        return None
    if folder is None:
        return (
            f"{ENABLED_KEY} is true, but {CAPTURE_DIR_KEY} does not say where the records go. Add "
            f"+{CAPTURE_DIR_KEY}=/an/absolute/folder, or leave {ENABLED_KEY} out."
        )
    if not isinstance(folder, str | Path) or not Path(folder).is_absolute():
        return (
            f"{CAPTURE_DIR_KEY} has to be an absolute path, for each server runs in a folder of its own, and is "
            f"{str(folder)!r}. Write {str(Path.cwd() / str(folder))!r}."
        )
    if Path(folder).exists() and not Path(folder).is_dir():
        return f"{CAPTURE_DIR_KEY} has to be a folder, and {folder} is a file."
    return None
