"""Public import path of the observation and trajectory models of `nemo_gym.capture`; re-exports only."""

from nemo_gym.capture.joining import join_model_call_observations
from nemo_gym.capture.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
)
from nemo_gym.capture.trajectory import (
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
)
from nemo_gym.published.captured_calls import AgentEpisode

__all__ = [
    "AgentEpisode", "AgentInvocation", "AgentObservationBundle", "ContextCompactionObservation", "ModelCallRef",
    "ObservationGap", "SandboxObservation", "ToolCallObservation", "TrajectoryModelCall", "TrajectoryRecord",
    "TrajectoryResponseMetadata", "TrajectoryTokenStats", "TrajectoryToolCall", "TrajectoryTurn",
    "join_model_call_observations",
]  # fmt: skip
