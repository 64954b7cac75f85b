"""Run rollouts from a program: what training frameworks call instead of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from pydantic import BaseModel, PrivateAttr

from nemo_gym.config.published import told_by
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import DataError
from nemo_gym.http.client import HEAD_SERVER_KEY, ServerClient
from nemo_gym.http.problems import failure_of_row
from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.aggregate import aggregate
from nemo_gym.rollouts.collector import allowed_connections, collect
from nemo_gym.rollouts.job import CollectionSettings, CollectJob, RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.runner import Runner
from nemo_gym.rollouts.subject import RunSubject
from nemo_gym.rollouts.tasks import TaskPlan, agent_of, find_input

Row = dict[str, Any]

PUBLISHED_NAME = "nemo_gym.rollout_collection"
"""Where frameworks import this from, and where tests replace what the configuration says."""

TIMEOUT_KEY = "rollout_timeout_s"


class RolloutCollectionHelper(BaseModel):
    """Sends rows to the agents that they name, and hands back what came of each."""

    rollout_timeout_s: float | None = None
    """A rollout of `run_examples` that takes longer than this fails; by default the configuration's, or else 1800."""

    _closing: set[asyncio.Task[None]] = PrivateAttr(default_factory=set)

    def setup_server_client(self, head_server_config: Any = None) -> ServerClient:
        """A client for the run whose head server this is (`host`, `port`); by default the configuration's."""
        head = head_server_config or BaseServerConfig.model_validate(dict(told_by(PUBLISHED_NAME)[HEAD_SERVER_KEY]))
        return ServerClient.load_from_global_config(head)

    def run_examples(
        self,
        examples: Iterable[Row],
        head_server_config: Any = None,
        semaphore: AbstractAsyncContextManager[Any] | None = None,
    ) -> Iterator[Awaitable[tuple[Row, Row]]]:
        """Start all rollouts, and give an awaitable for each in the order in which they end.

        Each gives `(row, result)`: the row as it was handed in, and the graded rollout, token ids included where the
        model server returns them. A rollout that failed raises a `RolloutError` that says in which tier and why; the
        others go on. `semaphore` bounds how many run at once, beside the number of connections that there may be.
        Has to be called, and iterated, where an event loop runs.
        """
        rows = list(examples)
        client = self.setup_server_client(head_server_config)
        for number, row in enumerate(rows):
            if agent_of(row) is None:
                known = ", ".join(client.agent_names())
                raise DataError(f"examples[{number}] names no agent. Give it agent_ref: {{name: …}}, one of: {known}.")
        runner = Runner(client, rollout_timeout_s=self._timeout_s(client))
        connections = asyncio.Semaphore(allowed_connections(max(1, len(rows))))
        wanted = semaphore or nullcontext()

        async def run(row: Row) -> tuple[Row, Row]:
            async with wanted, connections:
                result = await runner.result_of(row)
            if failure := failure_of_row(result):
                raise failure
            return row, result

        rollouts = [asyncio.ensure_future(run(row)) for row in rows]
        self._close_after(client, rollouts)
        return iter(asyncio.as_completed(rollouts))

    async def run_from_config(self, config: CollectJob) -> list[Row]:
        """What `ng_collect_rollouts` does, with the same files; the scored rollouts, as they stand in the output."""
        client = self.setup_server_client()
        files = RunFiles(results=config.output_jsonl_fpath)
        try:
            plan = TaskPlan(find_input(config.input_jsonl_fpath), config, client.agent_names())
            with locked(files), open_run(plan, files, RunSubject.of_config(client.global_config_dict)) as run:
                await collect(client, run)
                if not config.disable_aggregation:
                    await aggregate(client, files)
        finally:
            await client.aclose()
        return list(read_rows(files.results))

    def _timeout_s(self, client: ServerClient) -> float:
        if self.rollout_timeout_s is not None:
            return self.rollout_timeout_s
        # Frameworks make their helper without arguments, and hand on what their users configure.
        return float(client.global_config_dict.get(TIMEOUT_KEY, CollectionSettings.model_fields[TIMEOUT_KEY].default))

    def _close_after(self, client: ServerClient, rollouts: list[asyncio.Task[tuple[Row, Row]]]) -> None:
        async def close() -> None:
            # Whoever iterates may stop early; the rollouts run to their end all the same.
            if rollouts:
                await asyncio.wait(rollouts)
            await client.aclose()

        closing = asyncio.ensure_future(close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
