"""Published name of what lives in `nemo_gym.http.correlation` and `nemo_gym.servers.base`."""

from nemo_gym.http.correlation import current_rollout_id, maybe_rollout_id_from_run_body, rollout_context
from nemo_gym.schemas.rollout import ROLLOUT_ID_PATTERN
from nemo_gym.servers.front import RolloutContextMiddleware

__all__ = [
    "ROLLOUT_ID_PATTERN",
    "RolloutContextMiddleware",
    "current_rollout_id",
    "maybe_rollout_id_from_run_body",
    "rollout_context",
]
