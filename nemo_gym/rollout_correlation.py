"""Public import path of the rollout id of the current call and its middleware; re-exports only."""

from nemo_gym.context.rollout_id import current_rollout_id, maybe_rollout_id_from_run_body, rollout_context
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN
from nemo_gym.web.middleware import RolloutContextMiddleware

__all__ = [
    "ROLLOUT_ID_PATTERN",
    "RolloutContextMiddleware",
    "current_rollout_id",
    "maybe_rollout_id_from_run_body",
    "rollout_context",
]
