"""Public import path of the token capture's settings; re-exports only."""

from nemo_gym.published.model_servers import token_id_capture_config

__all__ = ["token_id_capture_config"]
