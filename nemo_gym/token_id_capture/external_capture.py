"""Public import path of recorders that model servers call themselves; re-exports only."""

from nemo_gym.published.model_servers import ExternalCaptureHandler, make_external_capture_handler

__all__ = ["ExternalCaptureHandler", "make_external_capture_handler"]
