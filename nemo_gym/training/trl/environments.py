"""An `environment_factory` for TRL. Its environments have the tools of a resources server as methods."""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from nemo_gym.errors import InvalidTask, RolloutError, UsageError
from nemo_gym.schemas.shapes import ToolDefinition
from nemo_gym.text import counted
from nemo_gym.training.loop_thread import LoopThread
from nemo_gym.training.trl.episode import Completion, Episode
from nemo_gym.training.trl.prompts import row_of
from nemo_gym.training.trl.server import OpenServer, running, started
from nemo_gym.training.trl.signatures import method_of

logger = logging.getLogger(__name__)


def environment(
    *sources: str | Path,
    server: str | None = None,
    overrides: Sequence[str] = (),
    tools: Sequence[ToolDefinition] | None = None,
    call_timeout_s: float = 600.0,
    run_token: str | None = None,
) -> EnvironmentFactory:
    """Return an `environment_factory` for `GRPOTrainer`.

    `sources` is one of these:

    - the folder of an environment, or its config files. Its resources server and the models of its judges are started,
      but no agents and no policy. `overrides` are config overrides as on the command line.
    - the address of a running head server (`http://…` or `https://…`).

    `server` selects one of several resources servers.

    The tools are those that the server lists. If the server lists none, pass the tools of its rows as `tools`.
    `call_timeout_s` limits each call to the server.
    """
    if len(sources) == 1 and str(sources[0]).startswith(("http://", "https://")):
        return EnvironmentFactory(running(str(sources[0]), server, run_token), tools, call_timeout_s)
    return EnvironmentFactory(started(sources, server, overrides), tools, call_timeout_s)


class Environment:
    """A TRL environment that runs one rollout after another. In its subclass, each tool is a method."""

    _factory: ClassVar[EnvironmentFactory]
    _episode: Episode | None = None

    def reset(self, prompt: Completion = (), **columns: object) -> None:
        """Begin the rollout of the prompt's row. The other columns of the dataset override fields of the row."""
        self._episode = self._factory.begin(self._episode, _row_of(prompt, columns))


def _call_tool(environment: Environment, name: str, arguments: Mapping[str, object]) -> str:
    if environment._episode is None:
        raise UsageError(f"the tool '{name}' was called before reset(). Begin with reset(**row).")
    return environment._factory.loop.result_of(environment._episode.call(name, arguments))


def _row_of(prompt: Completion, columns: Mapping[str, object]) -> Mapping[str, object]:
    row = {} if isinstance(prompt, str) else row_of(prompt)
    # Leave out None, because datasets use it to fill the columns that a row lacks.
    fields = {name: value for name, value in columns.items() if value is not None}
    return {"responses_create_params": {"input": prompt}, **(row or {}), **fields}


class EnvironmentFactory:
    """A factory of TRL environments for one resources server. The factory also grades their rollouts.

    `close` or the end of the process stops the servers that were started for the factory.
    """

    def __init__(self, server: OpenServer, tools: Sequence[ToolDefinition] | None, call_timeout_s: float) -> None:
        """Use the tools of `server`, or `tools` if given. The function `environment` describes the arguments."""
        self._server = server
        self._call_timeout_s = call_timeout_s
        self.loop = LoopThread()
        self.loop.start()
        atexit.register(self.close)
        try:
            self._tools = list(tools) if tools is not None else self.loop.result_of(server.listed_tools())
            methods = {each["name"]: method_of(each, _call_tool) for each in self._tools}
        except BaseException:
            self.close()
            raise
        self._class: type[Environment] = type("Environment", (Environment,), {**methods, "_factory": self})

    def __call__(self) -> Environment:
        """Return a new environment; TRL calls this once for each rollout of a batch."""
        return self._class()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client, and stop the servers if they were started for this factory. Idempotent."""
        atexit.unregister(self.close)
        if self.loop.is_running:
            self.loop.result_of(self._server.client.aclose())
            self.loop.stop()
        self._server.close()

    def reward(
        self, completions: Sequence[Completion], environments: Sequence[object], **_: object
    ) -> list[float | None]:
        """Return the verifier's reward for the rollout of each environment.

        The reward is None if the rollout failed or is masked, or if the environment belongs to another factory. Pass
        this method as `GRPOTrainer(reward_funcs=…)`.
        """
        own = [each._episode if isinstance(each, self._class) else None for each in environments]
        rewards = self.loop.result_of(_graded(own, completions))
        failures = [each.failure for each in own if each is not None and each.failure is not None]
        if failures:
            logger.warning(
                "%s of %d failed. The first failure: %s", counted(len(failures), "rollout"), len(own), failures[0]
            )
        return rewards

    def begin(self, before: Episode | None, row: Mapping[str, object]) -> Episode:
        """End the episode `before`, if any, and begin one with `row`. Raise `InvalidTask` if the row is rejected."""
        self._server.check()
        episode = Episode(self._server.client, self._server.name, row, self._tools, self._call_timeout_s)
        self.loop.result_of(_begun(before, episode))
        return episode


async def _begun(before: Episode | None, episode: Episode) -> None:
    if before is not None:
        await before.close()
    try:
        await episode.seed()
    except InvalidTask:
        raise
    except RolloutError as error:
        # Record the failure instead of raising it, so that only this rollout fails and the training continues.
        episode.failure = error


async def _graded(episodes: Sequence[Episode | None], completions: Sequence[Completion]) -> list[float | None]:
    async def graded(episode: Episode | None, completion: Completion) -> float | None:
        return None if episode is None else await episode.verify(completion)

    return await asyncio.gather(*map(graded, episodes, completions))
