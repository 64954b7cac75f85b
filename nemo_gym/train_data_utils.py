"""Public import path of `nemo_gym.data.prepare`; re-exports only."""

from nemo_gym.data.prepare import PreparationSettings as TrainDataProcessorConfig
from nemo_gym.published.commands import prepare_data
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on

__all__ = ["TrainDataProcessorConfig", "prepare_data"]
