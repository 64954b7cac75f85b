"""Configuration from YAML and the command line as one frozen `RunConfig`."""

from nemo_gym.config.explain import explain_input, explain_validation, parse_settings, problems_by_key
from nemo_gym.config.loading import load
from nemo_gym.config.masking import is_secret_key, mask_text, masked, masked_yaml, raw_yaml
from nemo_gym.config.models import DatasetConfig, HeadConfig, Origin, PortRange, RunConfig, ServerConfig
from nemo_gym.config.ports import bind, share
from nemo_gym.config.servers import NO_MODEL

__all__ = [
    "NO_MODEL", "DatasetConfig", "HeadConfig", "Origin", "PortRange", "RunConfig", "ServerConfig", "bind",
    "explain_input", "explain_validation", "is_secret_key", "load", "mask_text", "masked", "masked_yaml",
    "parse_settings", "problems_by_key", "raw_yaml", "share",
]  # fmt: skip
