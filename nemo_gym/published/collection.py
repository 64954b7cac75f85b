"""Steps of a collection that published folders call, override or mock. The `ng` commands do not use them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf
from pydantic import PrivateAttr

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import DataError
from nemo_gym.http.reply import Reply, ReplyTimedOut, Timeouts
from nemo_gym.jsonl import JsonObject, loads_exact, read_raw_lines
from nemo_gym.published.global_config import module_config
from nemo_gym.published.whole_config import block_in, run_of_config
from nemo_gym.rollouts.aggregate import AgentOutcomes, aggregate_all, outcomes_by_agent
from nemo_gym.rollouts.job import CollectJob, RunFiles
from nemo_gym.rollouts.numbering import TaskNumbers
from nemo_gym.rollouts.run_watch import RunWatch
from nemo_gym.rollouts.runner import Runner
from nemo_gym.rollouts.tasks import PlannedRow, TaskPlan, find_input
from nemo_gym.schemas.row import Row, TaskKey, rows_in

PUBLISHED_NAME = "nemo_gym.rollout_collection"
"""The public module of rollout collection. Published tests patch the configuration in that module."""
PREPROCESSING = "_preprocess_rows_from_config"


class AnyAgent(frozenset[str]):
    """A set of agent names that contains every name, for a run whose agents are unknown."""

    def __contains__(self, name: object) -> bool:
        return True


class PublishedClient(ServerClient):
    """A client that sends through another client, or through a mock that has only `post`.

    Rows are sent as `post(server_name=…, url_path="/run", json=row)`, with other arguments only if they are needed.
    """

    _sender: Any = PrivateAttr()

    @classmethod
    def of(cls, sender: Any) -> PublishedClient:
        """Return a client that sends through `sender`. If it is a mock, use the addresses in this process's config."""
        config = _config_of(sender)
        if is_ours(sender):
            head, book = sender.head_server_config, sender.address_book
        else:
            head = BaseServerConfig.model_validate({"host": "127.0.0.1", "port": 0, **block_in(config, "head_server")})
            book = AddressBook.of_run(run_of_config(config))
        client = cls(head_server_config=head, global_config_dict=config, address_book=book)
        client._sender = sender
        return client

    @property
    def known_agents(self) -> Collection[str]:
        """The agents of the run. If the wrapped client is a mock and no agents are configured, any name is known."""
        return self.agent_names() or ([] if is_ours(self._sender) else AnyAgent())

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Reply:
        reply: Reply
        if url_path != Runner.PATH:
            reply = await self._sender.post(server_name=server_name, url_path=url_path, **kwargs)
            return reply
        data, timeouts = kwargs["data"], kwargs["timeouts"]
        row = loads_exact(data() if callable(data) else data)
        needed: dict[str, Any] = {}
        if headers := {name: value for name, value in kwargs["headers"].items() if name != "content-type"}:
            needed["headers"] = headers
        if is_ours(self._sender) and timeouts.read_s > Timeouts().read_s:
            needed["timeouts"] = timeouts
        try:
            async with asyncio.timeout(timeouts.total_s) as limit:
                reply = await self._sender.post(server_name=server_name, url_path=url_path, json=row, **needed)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ReplyTimedOut(f"no reply within {timeouts.total_s:g} s") from error
        return reply

    def watch(self) -> RunWatch:
        """Return a watch on the run. If the wrapped client is a mock, the watch never ends a collection."""
        return RunWatch(self) if is_ours(self._sender) else _NoWatch(self)

    async def aclose(self) -> None:
        await super().aclose()
        if is_ours(self._sender):
            await self._sender.aclose()


class _NoWatch(RunWatch):
    """A watch that never ends a collection, for a mock whose servers need not exist."""

    async def watch(self) -> NoReturn:
        while True:
            await asyncio.Event().wait()

    async def confirm(self) -> None:
        return


def is_ours(client: object) -> bool:
    """Return whether a client is real, not a mock. Check the type itself, because a mock can pass `isinstance`."""
    return issubclass(type(client), ServerClient)


def _config_of(sender: Any) -> DictConfig:
    """Return this process's configuration. If it has no servers and `sender` is a real client, return the client's."""
    # Tests may replace the configuration with a plain mapping or a mock.
    given: Any = module_config(PUBLISHED_NAME)
    plain = dict(given) if isinstance(given, Mapping) else {}
    config = given if isinstance(given, DictConfig) else OmegaConf.create(plain)
    if isinstance(sender, ServerClient) and is_ours(sender) and not run_of_config(config).servers:
        return sender.global_config_dict
    return config


class PreprocessedRows(list[JsonObject]):
    """The rows of a plan, which the caller may change."""

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__(row.fields for row in plan.rows())
        self._plan = plan

    @classmethod
    def of(cls, config: CollectJob, client: PublishedClient | None) -> PreprocessedRows:
        """Return the rows of a collection's input. Without a client, the configuration defines the valid agents."""
        if client is None:
            book = AddressBook.of_run(run_of_config(module_config(PUBLISHED_NAME)))
            agents: Collection[str] = book.agent_names() or AnyAgent()
        else:
            book, agents = client.address_book, client.known_agents
        return cls(TaskPlan(find_input(config.input_jsonl_fpath), config, agents, rules=book.task_rules))

    def plan_if_unchanged(self) -> TaskPlan | None:
        """Return the plan, or None if the caller has changed the rows."""
        planned = (row.fields for row in self._plan.rows())
        return self._plan if all(mine == theirs for mine, theirs in zip_longest(self, planned)) else None


def plan_of(rows: Sequence[JsonObject], config: CollectJob, client: PublishedClient) -> TaskPlan:
    """Return the original plan of these rows if they are unchanged, or else a plan that sends the given rows."""
    plan = rows.plan_if_unchanged() if isinstance(rows, PreprocessedRows) else None
    if plan is not None:
        return plan
    rules = client.address_book.task_rules
    return _GivenRows(find_input(config.input_jsonl_fpath), config, client.known_agents, rules=rules, given=rows)


@dataclass(frozen=True)
class _GivenRows(TaskPlan):
    """Rows that an override of the preprocessing has returned, each with its task and repeat number."""

    given: Sequence[JsonObject] = field(default=())

    def check(self) -> TaskNumbers:
        seen: set[TaskKey] = set()
        for number, fields in enumerate(self.given):
            row, place = Row(fields), f"{PREPROCESSING}: row {number}"
            try:
                key = row.key
            except KeyError as error:
                raise DataError(f"{place} lacks {error.args[0]}. Add it, or keep that of the original row.") from error
            if key in seen:
                raise DataError(f"{place} has the same task and repeat number as an earlier row. Change one of them.")
            seen.add(key)
            if problem := self._agent_problem(row):
                raise DataError(f"{place}: {problem}")
        if not seen:
            raise DataError(f"{PREPROCESSING} returned no rows, so there is nothing to collect.")
        return TaskNumbers(array("Q"), array("Q"))

    def rows(self) -> Iterator[Row]:
        self.check()
        return map(Row, self.given)

    def planned(self, numbers: TaskNumbers) -> Iterator[PlannedRow]:
        for row in map(Row, self.given):
            yield PlannedRow(row, *row.key, repeats=1, has_own_number=True)

    def repeated(self, row: Row, repeat: int) -> Row:
        return row.of_repeat(repeat)


def rows_of(results: Iterable[JsonObject], files: RunFiles) -> list[JsonObject]:
    """Return for each result the row that was sent to the agent, or else the result itself."""
    sent = {row.key: row.fields for row in rows_in(files.materialized)}
    # The row of an earlier run's result may no longer be in the file. Use the result itself instead.
    return [sent.get(Row(result).key, result) for result in results]


def with_agents(results: Sequence[JsonObject], rows: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the results. If there is one row per result, add the row's agent to results that do not name an agent."""
    if len(results) != len(rows):
        return list(results)
    return [
        result if "agent_ref" in result else {**result, "agent_ref": row.get("agent_ref")}
        for result, row in zip(results, rows, strict=True)
    ]


async def aggregate_results(
    client: ServerClient | None, results: Sequence[JsonObject], rows: Sequence[JsonObject], files: RunFiles
) -> bool:
    """Write the metrics of these results next to the output, and return whether there are any metrics.

    The counts of planned and failed rollouts are included only if the output has as many results as are passed.
    """
    ledgers = await asyncio.to_thread(_ledgers_of_all, files, len(results))
    metrics = await aggregate_all(
        client, [files.results], files.metrics, ledgers=ledgers, rollouts=map(Row, with_agents(results, rows))
    )
    return bool(metrics)


def _ledgers_of_all(files: RunFiles, results: int) -> dict[str, AgentOutcomes] | None:
    if (
        not (files.results.exists() and files.ledger.exists())
        or sum(1 for _ in read_raw_lines(files.results)) != results
    ):
        return None
    return outcomes_by_agent(files)
