"""The settings of the recording of model calls, as server folders read them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

OBSERVABILITY_ENABLED_KEY_NAME = "observability_enabled"


class ModelCallCaptureConfig(BaseModel):
    """The two top-level settings for the recording of model calls."""

    model_config = ConfigDict(frozen=True)

    observability_enabled: bool = False
    model_call_capture_dir: Path | None = None
    """The folder of the records. The path is absolute, because each server runs in its own folder."""
