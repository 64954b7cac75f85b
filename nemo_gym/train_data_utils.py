"""Public import path of `nemo_gym.data.prepare`; re-exports only."""

from nemo_gym.data.prepare import PreparationSettings as TrainDataProcessorConfig
from nemo_gym.published.commands import prepare_data

__all__ = ["TrainDataProcessorConfig", "prepare_data"]
