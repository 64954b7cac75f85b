"""Public import path of the token capture of `nemo_gym.capture.tokens`; re-exports only."""

from nemo_gym.capture.tokens.collecting import finalize_rollout_token_capture
from nemo_gym.capture.tokens.entry import FrozenTokens, RolloutFrozen, TokenEntry, TokenSink, TokenSource
from nemo_gym.capture.tokens.file_store import FileTokenStore
from nemo_gym.capture.tokens.sequences import TokenTrajectories, trajectories_for_rollout
from nemo_gym.published.captured_calls import retire_rollout_token_capture
from nemo_gym.published.model_servers import current_capture_context

__all__ = [
    "FileTokenStore", "FrozenTokens", "RolloutFrozen", "TokenEntry", "TokenSink", "TokenSource", "TokenTrajectories",
    "current_capture_context", "finalize_rollout_token_capture", "retire_rollout_token_capture",
    "trajectories_for_rollout",
]  # fmt: skip
