"""Public import path of the conversion of streaming requests; re-exports only."""

from nemo_gym.published.model_servers import sanitize_streaming_responses_body

__all__ = ["sanitize_streaming_responses_body"]
