"""Published name of what lives in `nemo_gym.servers.model`."""

from nemo_gym.config.settings import BaseResponsesAPIModelConfig
from nemo_gym.servers.model import BaseResponsesAPIModel, Body, SimpleResponsesAPIModel

__all__ = ["BaseResponsesAPIModel", "BaseResponsesAPIModelConfig", "Body", "SimpleResponsesAPIModel"]
