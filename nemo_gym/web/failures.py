"""What a server answers when a handler fails: a problem body that keeps the cause, and the traceback in its log."""

from __future__ import annotations

import logging

from starlette.types import Scope

from nemo_gym.calls.problems import failure_of_call, problem_of_body
from nemo_gym.errors import EndpointError, InvalidTask, RolloutError, ServerCallError
from nemo_gym.http.reply import readable

logger = logging.getLogger(__name__)

ROLLOUT_ID_SCOPE_KEY = "nemo_gym_rollout_id"
"""Where an inner layer leaves the rollout's id for an outer one, which stands outside of its context."""


class Failures:
    """What the failures of one server's handlers are to the rollouts."""

    def __init__(self, server: str, otherwise: type[RolloutError]) -> None:
        """`otherwise` is the failure where an error does not say which it is."""
        self.server = server
        self.otherwise = otherwise

    def failure(self, error: Exception, scope: Scope) -> RolloutError:
        """The failure that an error of the handler of this request means; the log has the error itself."""
        path, rollout_id = scope["path"], scope.get(ROLLOUT_ID_SCOPE_KEY)
        if isinstance(error, RolloutError):
            if error.server is None:
                error.server = self.server
                if isinstance(error, InvalidTask):
                    error.tier = self.otherwise.default_tier
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return error
        content = _answer_in(error)
        told = problem_of_body(content)
        if told is not None:
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return told.to_error()
        if isinstance(error, ServerCallError):
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return failure_of_call(error, server=self.server, otherwise=self.otherwise, during=self.server)
        logger.exception("%s failed (rollout %s)", path, rollout_id, exc_info=error)
        raised = readable(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        if content:
            raised = f"{raised} ({readable(content)})"
        return self.otherwise(f"{self.server}: {path} raised {raised}; its log has the traceback", server=self.server)


def _answer_in(error: Exception) -> bytes:
    """What one of our servers answered, where our client or `raise_for_status` has left it on the error."""
    content = getattr(error, "response_content", b"")
    # What an endpoint outside says is not ours to pass on as the cause.
    return content if isinstance(content, bytes) and not isinstance(error, EndpointError) else b""
