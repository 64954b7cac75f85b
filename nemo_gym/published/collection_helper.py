"""Run rollouts from a program, such as a training framework, instead of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, PrivateAttr, ValidationError

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_row
from nemo_gym.config.explain import problems_by_key
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.config.subject import RunSubject
from nemo_gym.data.media import check_embedded
from nemo_gym.errors import ConfigError, InvalidTask, RolloutCancelled, RolloutError
from nemo_gym.jsonl import JsonObject, loads_exact, read_rows
from nemo_gym.published.collection import (
    PUBLISHED_NAME,
    PreprocessedRows,
    PublishedClient,
    aggregate_results,
    plan_of,
    rows_of,
)
from nemo_gym.published.global_config import module_config
from nemo_gym.published.whole_config import run_of_config
from nemo_gym.rollouts.collector import allowed_connections, collect
from nemo_gym.rollouts.groups import GroupedTasks, GroupKey
from nemo_gym.rollouts.job import AttemptSettings, CollectJob, RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.recorded_tokens import RecordedTokens, kept_until_the_end
from nemo_gym.rollouts.resume import max_attempts
from nemo_gym.rollouts.runner import AttemptLimits, Runner, run_to_its_end
from nemo_gym.schemas.row import Row
from nemo_gym.text import ADD_A_FILE, did_you_mean_or_all


class RolloutCollectionHelper(BaseModel):
    """A helper that sends rows to the agents named in the rows, and returns the results."""

    rollout_timeout_s: float | None = None
    """Seconds after which a rollout of `run_examples` fails. Default: the run's configuration, or 1800."""
    max_attempts: int | None = None
    """How often `run_examples` tries a row if servers are lost or overloaded.

    Default: the run's configuration, the environment variable NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3.
    """

    _under_way: set[asyncio.Task[None]] = PrivateAttr(default_factory=set)
    _client: PublishedClient | None = PrivateAttr(None)

    def setup_server_client(self, head_server_config: Any = None) -> ServerClient:
        """Return a client for the run of this head server (`host`, `port`). Default: the configured head server."""
        if not head_server_config:
            head_server_config = BaseServerConfig.model_validate(dict(module_config(PUBLISHED_NAME)["head_server"]))
        return ServerClient.load_from_global_config(head_server_config)

    def run_examples(
        self,
        examples: Iterable[JsonObject],
        head_server_config: Any = None,
        semaphore: AbstractAsyncContextManager[Any] | None = None,
    ) -> Iterator[Awaitable[tuple[JsonObject, JsonObject]]]:
        """Start all rollouts and return an iterator of awaitables, each for the next rollout that has ended.

        Each awaitable returns `(row, result)`: the row as passed in and the graded rollout, with token ids if the
        model server returns them. The awaitables of failed rollouts come last, after all attempts. They raise a
        `RolloutError` with the tier, the cause and the `row`. `semaphore` limits how many rollouts run at once; the
        limit of open files also applies. Call this and await the results in the same running event loop.

        Raise `InvalidTask` (status 422) before sending anything if a row does not name an agent of the run.
        """
        rows = [Row(example) for example in examples]
        client = self.setup_server_client(head_server_config)
        _check_agents(rows, client.agent_names())
        examples_run = _ExamplesRun(client, self._attempt_settings(client), rows, semaphore)
        task = asyncio.ensure_future(examples_run.run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return (examples_run.next_ended() for _ in rows)

    async def run_from_config(self, config: CollectJob) -> list[JsonObject]:
        """Collect rollouts like `ng_collect_rollouts`, with the same files. Return the scored rollouts.

        Subclasses may replace the client, `_preprocess_rows_from_config` and `_call_aggregate_metrics`.
        """
        client = PublishedClient.of(self.setup_server_client())
        run_config = client.global_config_dict
        files = RunFiles(results=config.output_jsonl_fpath)
        try:
            self._client = client
            plan = plan_of(self._preprocess_rows_from_config(config), config, client)
            with locked(files), open_run(plan, files, RunSubject.of_run(run_of_config(run_config))) as run:
                await collect(client, run, watch=client.watch())
                results = list(read_rows(files.results))
                if not config.disable_aggregation:
                    await self._call_aggregate_metrics(results, rows_of(results, files), files.results)
        finally:
            self._client = None
            await client.aclose()
        return results

    def _preprocess_rows_from_config(self, config: CollectJob) -> list[JsonObject]:
        """Return the rows of a collection as they are sent to the agents, each with its task and repeat number."""
        return PreprocessedRows.of(config, self._client)

    async def _call_aggregate_metrics(
        self, results: Sequence[JsonObject], rows: Sequence[JsonObject], output_path: Path | str
    ) -> Path | None:
        """Write the metrics of results next to the output. Return the file's path, or None if there are no metrics.

        `rows` contains the row of each result.
        """
        files = RunFiles(results=Path(output_path))
        client = PublishedClient.of(self.setup_server_client())
        try:
            has_metrics = await aggregate_results(client, results, rows, files)
        finally:
            await client.aclose()
        return files.metrics if has_metrics else None

    def _attempt_settings(self, client: ServerClient) -> AttemptSettings:
        # Read the configuration, too, because frameworks create the helper without arguments and put settings there.
        configured = client.global_config_dict
        given = {name: configured[name] for name in AttemptSettings.model_fields if name in configured}
        own = {"rollout_timeout_s": self.rollout_timeout_s, "max_attempts": self.max_attempts}
        given |= {name: value for name, value in own.items() if value is not None}
        try:
            return AttemptSettings.model_validate(given)
        except ValidationError as error:
            problems = "; ".join(f"{key}: {problem}" for key, problem in problems_by_key(error).items())
            raise ConfigError(f"the configuration of run_examples is invalid: {problems}") from error


def _check_agents(rows: Sequence[Row], known: Sequence[str]) -> None:
    for number, row in enumerate(rows):
        check_embedded(row.fields, f"examples[{number}]")
        name = row.agent
        if name is None:
            listed = ", ".join(known)
            raise InvalidTask(f"examples[{number}] does not name an agent. Set agent_ref.name to one of: {listed}.")
        if name not in known:
            hint = did_you_mean_or_all(name, known, "agents", if_none=ADD_A_FILE)
            raise InvalidTask(f"examples[{number}].agent_ref: agent '{name}' is not part of this run.{hint}")


def _in_groups(rows: Sequence[Row], groups: GroupedTasks) -> list[Row]:
    """Register the groups of the rows. Return the rows to send. Those of a group have different repeat numbers."""
    numbers_of: dict[GroupKey, list[int]] = {}
    for number, row in enumerate(rows):
        if (key := groups.key_of(row)) is not None:
            numbers_of.setdefault(key, []).append(number)
    sent = list(rows)
    for numbers in numbers_of.values():
        given = {rows[number].repeat_index for number in numbers}
        if None in given or len(given) < len(numbers):
            for repeat, number in enumerate(numbers):
                sent[number] = rows[number].of_repeat(repeat)
        groups.expect(rows[numbers[0]], (sent[number].key.repeat for number in numbers))
    return sent


class EndedRollout(NamedTuple):
    row: JsonObject
    """The row as passed in."""
    result: JsonObject


class _ExamplesRun:
    """The rollouts of one call of `run_examples`, and a queue of those that have ended."""

    def __init__(
        self,
        client: ServerClient,
        settings: AttemptSettings,
        rows: Sequence[Row],
        semaphore: AbstractAsyncContextManager[Any] | None,
    ) -> None:
        self._client = client
        # Callers read the token ids, so results are parsed in full.
        self._tokens = RecordedTokens.of(client)
        self._runner = Runner(
            client, rollout_timeout_s=settings.rollout_timeout_s, loads=loads_exact, tokens=self._tokens
        )
        self._limits = AttemptLimits.of(settings, max_attempts(settings))
        self._groups = GroupedTasks(client, client.address_book.task_rules.grouped, self._limits)
        self._sent = _in_groups(rows, self._groups)
        self._given = {id(sent): row for sent, row in zip(self._sent, rows, strict=True)}
        """The rows as passed in, by the ids of the rows in `_sent`."""
        self._wanted = semaphore or nullcontext()
        self._connections = asyncio.Semaphore(allowed_connections(max(1, len(rows))))
        self._ended: asyncio.Queue[EndedRollout | RolloutError] = asyncio.Queue()
        self._failures: list[RolloutError] = []
        self._pending = len(rows)

    async def next_ended(self) -> EndedRollout:
        """Return the next rollout that has ended, or raise its failure."""
        ended = await self._ended.get()
        if isinstance(ended, RolloutError):
            raise ended
        return ended

    async def run(self) -> None:
        """Run all rollouts, then queue the failures. The queue always gets one entry per row."""
        try:
            async with kept_until_the_end(self._tokens), asyncio.TaskGroup() as group:
                for row in self._sent:
                    group.create_task(self._run(row))
        finally:
            for failure in self._failures:
                self._put(failure)
            while self._pending:
                self._put(RolloutCancelled("run_examples was stopped before the rollout ended"))
            await self._client.aclose()

    async def _run(self, row: Row) -> None:
        async with self._wanted, self._connections:
            record = await run_to_its_end(self._runner, row, self._limits, on_repeat=lambda record: None)
        async for ended, final in self._groups.end(row, record):
            given = self._given[id(ended)].fields
            if failure := failure_of_row(final.row):
                failure.row = given
                # A failure ends the loop of a caller that does not catch it, so failures are queued after all results.
                self._failures.append(failure)
            else:
                self._put(EndedRollout(given, final.row.fields))

    def _put(self, ended: EndedRollout | RolloutError) -> None:
        self._pending -= 1
        self._ended.put_nowait(ended)
