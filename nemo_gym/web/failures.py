"""The response to a failure of a handler: a problem body with the cause. The traceback goes to the log."""

from __future__ import annotations

import logging

from starlette.types import Scope

from nemo_gym.calls.problems import failure_of_call, problem_of_body
from nemo_gym.errors import EndpointError, InvalidTask, RolloutError, ServerCallError
from nemo_gym.http.reply import readable

logger = logging.getLogger(__name__)

ROLLOUT_ID_SCOPE_KEY = "nemo_gym_rollout_id"
"""Scope key under which an inner layer passes the rollout's id to an outer one, which runs outside its context."""


class Failures:
    """Conversion of errors in one server's handlers to failures of rollouts."""

    def __init__(self, server: str, otherwise: type[RolloutError]) -> None:
        """`otherwise` is the failure for errors that are not a `RolloutError`."""
        self.server = server
        self.otherwise = otherwise

    def failure(self, error: Exception, scope: Scope) -> RolloutError:
        """Log an error of a request's handler and return the failure that it causes for the rollout."""
        path, rollout_id = scope["path"], scope.get(ROLLOUT_ID_SCOPE_KEY)
        if isinstance(error, RolloutError):
            if error.server is None:
                error.server = self.server
                if isinstance(error, InvalidTask):
                    error.tier = self.otherwise.default_tier
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return error
        content = _response_in(error)
        problem = problem_of_body(content)
        if problem is not None:
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return problem.to_error()
        if isinstance(error, ServerCallError):
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return failure_of_call(error, server=self.server, otherwise=self.otherwise, during=self.server)
        logger.exception("%s failed (rollout %s)", path, rollout_id, exc_info=error)
        raised = readable(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        if content:
            raised = f"{raised} ({readable(content)})"
        return self.otherwise(f"{self.server}: {path} raised {raised}; its log has the traceback", server=self.server)


def _response_in(error: Exception) -> bytes:
    """Return the response of another server, if our client or `raise_for_status` attached it to the error."""
    content = getattr(error, "response_content", b"")
    # An external endpoint's response must not be passed on as the cause.
    return content if isinstance(content, bytes) and not isinstance(error, EndpointError) else b""
