"""The `token_id_capture` block: settings for recording the token ids of model calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, field_validator, model_validator

from nemo_gym.config.explain import explain_validation
from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError
from nemo_gym.jsonl import JsonObject

TOKEN_CAPTURE_KEY = "token_id_capture"


class TokenCaptureConfig(BaseModel):
    """The settings of the `token_id_capture` block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: StrictBool = False
    """Whether token ids are recorded."""
    all_agents: StrictBool = False
    """Whether to record the calls of all agents. If not, record only agents whose block sets `token_id_capture`."""
    dir: Path | None = None
    """The folder for the recorded token ids. The path must be absolute, because each server runs in its own folder."""
    sink: str | None = None
    """The class that stores the tokens, as `module:Class`. By default, tokens are stored in files in `dir`."""
    sink_kwargs: JsonObject = Field(default_factory=dict)
    """Arguments for the class that `sink` names."""
    rebuild_response: StrictBool = True
    """Whether to add the recorded tokens to `response.output` of each result."""
    max_mask_fraction: float | None = Field(default=None, ge=0, le=1, strict=True)
    """The maximum share of rollouts that are masked because tokens are missing. If it is exceeded, the run stops."""
    mask_fraction_min_samples: int = Field(default=50, ge=1, strict=True)
    """The minimum number of rollouts for `max_mask_fraction` to apply."""

    @field_validator("sink")
    @classmethod
    def _names_a_class(cls, sink: str | None) -> str | None:
        if sink is not None and not all(_class_path(sink)):
            raise ValueError(f"'{sink}' does not name a class; write module:Class")
        return sink

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.enabled and self.sink is None and (self.dir is None or not self.dir.is_absolute()):
            found = "is not set" if self.dir is None else f"is '{self.dir}'"
            raise ValueError(f"dir {found}, but the records need an absolute path. Set dir to an absolute path")
        return self

    @property
    def sink_class(self) -> tuple[str, str]:
        """The module and the name of the sink's class."""
        return _class_path(self.sink or "")

    @classmethod
    def of(cls, config: object) -> TokenCaptureConfig:
        """Return the settings in a configuration. Without a `token_id_capture` block, token capture is disabled."""
        block = config.get(TOKEN_CAPTURE_KEY) if isinstance(config, Mapping) else None
        if not isinstance(block, Mapping) or block.get("enabled") is not True:
            return cls()
        # Do not validate the block again, because it was checked when the configuration was loaded.
        fields: dict[str, Any] = {str(key): value for key, value in block.items()}
        if fields.get("dir") is not None:
            fields["dir"] = Path(str(fields["dir"])).expanduser()
        return cls.model_construct(**fields)


def _class_path(text: str) -> tuple[str, str]:
    module, _, name = text.rpartition(":" if ":" in text else ".")
    return module, name


def check_token_capture(block: object, places: Mapping[str, Origin]) -> None:
    """Raise `ConfigError` if a `token_id_capture` block is invalid. `places` maps its keys to their origins."""
    try:
        TokenCaptureConfig.model_validate({} if block is None else block)
    except ValidationError as error:
        known = TokenCaptureConfig.model_fields
        explained = explain_validation(error, block=TOKEN_CAPTURE_KEY, origins=places, known=known)
        raise ConfigError(explained) from error
