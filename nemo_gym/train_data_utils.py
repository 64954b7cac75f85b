"""Public import path of `nemo_gym.data.prepare`; re-exports only."""

from nemo_gym.cli.published import prepare_data
from nemo_gym.data.prepare import PreparationSettings as TrainDataProcessorConfig

__all__ = ["TrainDataProcessorConfig", "prepare_data"]
