"""The errors that nemo_gym raises, grouped by audience.

- The user: `UserError`, shown as one paragraph without a traceback. The exit code is 1, or 2 for a `UsageError`.
  - `ConfigError`: a mistake in the YAML or on the command line.
  - `LaunchError`: a server that did not start, or that stopped unexpectedly.
  - `DataError`: a row, a file or an existing result that cannot be used.
- The run's records: `RolloutError`, a failed rollout. It is recorded apart from the scored ones and has no reward.
- The model: `ToolError`, returned as the tool's output.
- The caller: `ServerCallError`, a call between servers without a usable response. For a call to an external model
  endpoint, it is an `EndpointError`.

Anything else is a bug in nemo_gym and keeps its traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self


class NemoGymError(Exception):
    """Base class of all nemo_gym errors."""


class UserError(NemoGymError):
    """An error that the user can fix. Its message states the place, the problem and the remedy."""


class ConfigError(UserError):
    """A mistake in a configuration file or on the command line."""


class UsageError(ConfigError, ValueError):
    """A missing or wrong parameter of the command itself. The exit code is 2, as for a wrong flag."""


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """A configuration file that is not in any search root."""


class SkillsNotFoundError(ConfigPathNotFoundError, ValueError):
    """A folder of skills that does not exist."""


class MalformedConfigPathsError(ConfigError, ValueError):
    """A `config_paths` value that is not a list of paths."""


class ConfigSyntaxError(ConfigError, ValueError):
    """A configuration file that is not valid YAML or does not contain a mapping."""


class ConfigMissingValuesError(ConfigError, ValueError):
    """Required configuration values (`???`) that are not set. The message lists all of them."""


class ConfigInterpolationError(ConfigError, ValueError):
    """A `${…}` interpolation that is invalid or cannot be resolved."""


class InheritPathNotFoundError(ConfigError, ValueError):
    """An `_inherit_from` or `_copy` path that is not defined in any file."""


class NoServerInstancesError(ConfigError, ValueError):
    """A configuration that does not define any server."""


class AlmostServerError(ConfigError, ValueError):
    """A block that resembles a server but is invalid."""


class UnknownImplementationError(ConfigError, ValueError):
    """A server or sandbox provider without an implementation."""


class SandboxConfigError(ConfigError, ValueError):
    """A sandbox block that is missing, ambiguous or invalid, or a provider name that is already taken."""


class SandboxOptionError(ConfigError, TypeError):
    """An option that a sandbox provider does not have, or whose value is invalid."""


class DuplicateServerError(ConfigError, ValueError):
    """Two servers with the same name."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A reference to a server that is not defined in any file."""


class PortTakenError(ConfigError, ValueError):
    """A fixed port that is already in use."""


class OverrideError(ConfigError, ValueError):
    """A command-line override that cannot be parsed or applied."""


class LaunchError(UserError):
    """A server that did not start, or stopped while it was needed."""


class SignatureError(LaunchError, TypeError):
    """A method, such as a tool, with a signature that its server cannot support."""

    place: str | None = None
    """The file and line of the method, if it is known."""


class HeadServerNotFoundError(LaunchError, ValueError):
    """A head server that does not respond at its address."""


class DataError(UserError, ValueError):
    """A row or a file that cannot be used."""


class UnsupportedContentError(DataError, NotImplementedError):
    """Content of a request that another API cannot express."""


class RolloutError(NemoGymError):
    """A failed rollout. It is recorded with its cause and never gets a reward.

    `failure_class` is recorded as `_ng_failure_class`. `tier` is the source of the failure (`model`, `agent`,
    `environment`, `judge` or `collector`), and `server` is the server's name. `may_retry` means that the same rollout
    might succeed when run again, because the rollout itself did not cause the failure.
    """

    failure_class: ClassVar[str] = "rollout_failed"
    status: int = 500
    """The HTTP status with which servers report the failure."""
    may_retry: ClassVar[bool] = False
    default_tier: ClassVar[str] = "agent"

    def __init__(self, message: str, *, server: str | None = None, tier: str | None = None) -> None:
        super().__init__(message)
        self.server = server
        self.tier = tier or self.default_tier
        self.retry_after_s: float | None = None
        """Seconds to wait before a retry, from the `Retry-After` header of the failed server."""
        self.conversation: dict[str, Any] | None = None
        """The last `items` of the conversation and the number of `omitted` items before them; None if unknown."""
        self.log_file: str | None = None
        """The path of the log of the server that failed, if known."""
        self.row: dict[str, Any] | None = None
        """The failed row, if `run_examples` raises the error."""


class ModelFailed(RolloutError):
    """A model server or its endpoint did not return a usable response."""

    failure_class = "model_failed"
    status = 502
    default_tier = "model"


class AgentFailed(RolloutError):
    """The agent server could not complete the rollout."""

    failure_class = "agent_failed"


class EnvironmentFailed(RolloutError):
    """A tool, `seed_session` or `verify` failed, and the model did not cause the failure."""

    failure_class = "environment_failed"
    default_tier = "environment"


class OutOfTurn(EnvironmentFailed):
    """A call that its session does not allow now, such as a step without a game. Recorded as `EnvironmentFailed`."""

    status = 409


class JudgeFailed(RolloutError):
    """The judge did not return a verdict."""

    failure_class = "judge_failed"
    status = 502
    default_tier = "judge"


class RolloutTimedOut(RolloutError):
    """The rollout exceeded its time limit."""

    failure_class = "timeout"
    status = 504
    default_tier = "collector"


class Overloaded(RolloutError):
    """A server or model endpoint rejected the call for lack of capacity, despite retries."""

    failure_class = "overloaded"
    status = 503
    may_retry = True


class RolloutCancelled(RolloutError):
    """The client cancelled the rollout."""

    failure_class = "cancelled"
    status = 499
    default_tier = "collector"


class ServerLost(RolloutError):
    """A server stopped during the rollout, or restarted without the rollout's state."""

    failure_class = "lost"
    status = 503
    may_retry = True


class InvalidTask(RolloutError):
    """The row cannot be run, and a retry would fail in the same way."""

    failure_class = "invalid_task"
    status = 422
    default_tier = "collector"


FAILURES: Mapping[str, type[RolloutError]] = {
    failure.failure_class: failure for failure in RolloutError.__subclasses__()
}
"""All kinds of failure, keyed by `failure_class`."""


class ToolError(NemoGymError):
    """An error that a tool raises to inform the model; the rollout continues."""


class ServerCallError(NemoGymError):
    """A call to another server did not return a usable response.

    `was_sent` is False only if the request was certainly never sent, so a retry is safe.
    """

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent

    def of_server(self, name: str) -> Self:
        """Add the name of the called server to the message and return the error."""
        self.args = (f"server '{name}': {self}",)
        return self


class EndpointError(ServerCallError):
    """A model endpoint did not return a usable response, despite retries.

    `status` is the HTTP status, or None if there was no response. `body` is the start of the response body.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", was_sent: bool = True) -> None:
        super().__init__(message, was_sent=was_sent)
        self.status = status
        self.body = body
        self.response_content = body.encode()


def fault_in(folder: Path, error: BaseException) -> str:
    """Return an error's last location in a folder and its text, such as `app.py:12: KeyError: 'count'`."""
    folder = folder.resolve()
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((Path(error.filename), error.lineno))
        text = f"{type(error).__name__}: {error.msg}"
    # Skip installed packages, because a folder may contain its own virtual environment.
    own = [
        (path.resolve(), line)
        for path, line in frames
        if folder in path.resolve().parents and "site-packages" not in path.parts
    ]
    return f"{own[-1][0].relative_to(folder)}:{own[-1][1]}: {text}" if own else text
