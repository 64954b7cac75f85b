"""Public import path of the ids of `nemo_gym.schemas.sessions`; re-exports only."""

from nemo_gym.schemas.sessions import EpisodeId, TaskId

__all__ = ["EpisodeId", "TaskId"]
