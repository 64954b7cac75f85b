"""The key `model_cache`: store the replies of model endpoints on disk, and reuse them for equal requests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nemo_gym.config.models import Origin
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.errors import ConfigError

MODEL_CACHE_KEY = "model_cache"


def model_cache_of(config: object) -> Path | None:
    """Return the cache folder that a configuration sets, or None, also if `config` is not a mapping."""
    folder = config.get(MODEL_CACHE_KEY) if isinstance(config, Mapping) else None
    return Path(folder) if isinstance(folder, str) and folder else None


def check_model_cache(values: Mapping[str, object], places: Mapping[str, Origin]) -> None:
    """Raise `ConfigError` if the folder is not an absolute path, or if the run also records tokens for training."""
    given = values.get(MODEL_CACHE_KEY)
    if given is None:
        return
    place = f"{places[MODEL_CACHE_KEY]}: {MODEL_CACHE_KEY}"
    if not isinstance(given, str) or not Path(given).is_absolute():
        raise ConfigError(
            f"{place} must be an absolute path, because each server runs in its own folder, but is {given!r}. Write "
            f"{str(Path.cwd() / str(given))!r}."
        )
    if Path(given).exists() and not Path(given).is_dir():
        raise ConfigError(f"{place} must be a folder, but {given} is a file.")
    if TokenCaptureConfig.of(values).enabled:
        raise ConfigError(
            f"{place} cannot be used with token_id_capture: answers of an earlier policy must not be trained on. "
            "Remove one of the two keys."
        )
