"""The `token_id_capture` block: settings for recording the token ids of model calls."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator

from nemo_gym.jsonl import JsonObject


class ClassPath(NamedTuple):
    """The place of a class, written as `module:name` or `module.name`."""

    module: str
    name: str

    @classmethod
    def of(cls, text: str) -> Self:
        module, _, name = text.rpartition(":" if ":" in text else ".")
        return cls(module, name)


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
        if sink is not None and not all(ClassPath.of(sink)):
            raise ValueError(f"'{sink}' does not name a class; write module:Class")
        return sink

    @field_validator("dir")
    @classmethod
    def _in_the_home(cls, folder: Path | None) -> Path | None:
        return folder and folder.expanduser()

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.enabled and self.sink is None and (self.dir is None or not self.dir.is_absolute()):
            found = "is not set" if self.dir is None else f"is '{self.dir}'"
            raise ValueError(f"dir {found}, but the records need an absolute path. Set dir to an absolute path")
        return self

    @property
    def sink_class(self) -> ClassPath:
        return ClassPath.of(self.sink or "")
