"""Metrics of a finished run, requested from each agent for its own rollouts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf, isclose
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

import orjson

from nemo_gym.calls.caller import encode_json
from nemo_gym.calls.client import ServerClient
from nemo_gym.errors import DataError, RolloutError, ServerCallError
from nemo_gym.http.reply import Timeouts, readable
from nemo_gym.jsonl import dump_json, loads_exact, read_lines
from nemo_gym.metrics import numbers_of
from nemo_gym.metrics.aggregate import completeness, compute_aggregate_metrics
from nemo_gym.metrics.intervals import CI_HIGH, CI_LOW, mean_interval, pass_at_k_interval
from nemo_gym.metrics.pass_at_k import highest_k_metrics
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import events_in
from nemo_gym.rollouts.resume import KeySet, failures_in, keyed_rows
from nemo_gym.schemas.rollout import AgentMetrics, AggregateMetrics, LedgerOutcomes
from nemo_gym.schemas.row import PRIVATE_PREFIX, SECONDS_KEY, TASK_INDEX_KEY, Row, TaskKey

STRIPPED = frozenset({
    "response", "responses_create_params", "ng_model_call_capture", "ng_agent_observations", "ng_trajectory",
    "_ng_token_capture", SECONDS_KEY,
})  # fmt: skip
AGGREGATION_TIMEOUT_S = 600.0
WHEN_TOO_LARGE = (
    "The results of the run are too large for one request. Set a larger max_request_bytes for the agent and for its "
    "resources server, start them again, and run ng eval aggregate"
)
JSON = {"content-type": "application/json"}

ASKED_AT_ONCE = 4
KEPT_IN_MEMORY_BYTES = 1 << 20
MEAN_REWARD = "mean/reward"
PESSIMISTIC = "pessimistic/"


@dataclass
class FailedTask:
    """A task with at least one failed rollout and no scored rollout."""

    task: int
    rollouts: int = 0
    """The number of planned rollouts."""
    failed: Counter[str] = field(default_factory=Counter)
    message: str = ""
    """The message of the last attempt of the task's last failed rollout."""

    def as_dict(self) -> dict[str, object]:
        """Return the task in the format of the metrics file."""
        return {
            TASK_INDEX_KEY: self.task,
            "num_rollouts": 0,
            "expected_num_rollouts": self.rollouts,
            "failed": dict(self.failed),
            "message": self.message,
        }


@dataclass
class AgentOutcomes:
    """The rollouts of one agent: planned = scored + failed + unresolved. Attempts are not counted separately."""

    planned_of: Counter[int] = field(default_factory=Counter)
    """Planned rollouts per task."""
    scored: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Failed rollouts per cause of their last attempt."""
    failed_tasks: list[FailedTask] = field(default_factory=list)
    row_numbers: Counter[str] = field(default_factory=Counter)
    """For each numeric field of the rows, the sum of its values over the scored rollouts."""
    rows_with: Counter[str] = field(default_factory=Counter)
    """For each numeric field of the rows, the number of scored rollouts whose row has the field."""

    def outcomes(self) -> LedgerOutcomes:
        """Return the counts in the format of the metrics file.

        Rollouts that did not start, did not end, or returned a result with `_ng_no_persist` are unresolved.
        """
        planned, failed = self.planned_of.total(), dict(self.failed)
        unresolved = planned - self.scored - self.failed.total()
        return LedgerOutcomes(planned=planned, scored=self.scored, failed=failed, unresolved=unresolved)

    def echoed(self, agent_metrics: Mapping[str, object]) -> list[str]:
        """Return the numeric fields that the verifier only copied: their mean equals the mean in the input rows."""
        return sorted(
            name
            for name, count in self.rows_with.items()
            if count == self.scored
            and isinstance(mean := agent_metrics.get(f"mean/{name}"), int | float)
            and isclose(mean, self.row_numbers[name] / count, rel_tol=1e-6)
        )

    def pessimistic(self, mean: float) -> float:
        """Return the mean over scored and failed rollouts, with 0 for each failed one."""
        return mean * self.scored / (self.scored + self.failed.total())


def outcomes_by_agent(files: RunFiles) -> dict[str, AgentOutcomes]:
    """Return the outcomes of each agent of a run that has a ledger."""
    failures = failures_in(events_in(files.ledger, "failures"))
    without_score = {key.task for key in failures}

    def scored_keys() -> Iterator[TaskKey]:
        for event in events_in(files.ledger, "results"):
            without_score.discard(event["task"])
            yield TaskKey(event["task"], event["repeat"])

    scored = KeySet(scored_keys())
    ledgers: dict[str, AgentOutcomes] = {}
    failed_tasks: dict[int, FailedTask] = {}
    for key, row in keyed_rows(files.materialized):
        ledger = ledgers.setdefault(str(row.agent), AgentOutcomes())
        ledger.planned_of[key.task] += 1
        failure = failures.get(key)
        if key in scored:
            ledger.scored += 1
            numbers = numbers_of(row)
            ledger.row_numbers.update(numbers)
            ledger.rows_with.update(numbers.keys())
        elif failure:
            ledger.failed[failure.cause] += 1
        if key.task not in without_score:
            continue
        task = failed_tasks.get(key.task)
        if task is None:
            task = failed_tasks[key.task] = FailedTask(key.task)
            ledger.failed_tasks.append(task)
        task.rollouts += 1
        if failure:
            task.failed[failure.cause] += 1
            task.message = failure.message
    return ledgers


async def aggregate(client: ServerClient | None, files: RunFiles) -> list[AgentMetrics]:
    """Request each agent's metrics, add its ledger, and write them next to the results.

    Means cover the scored rollouts; `pessimistic/mean/reward` also counts each failed one as 0.

    If there is no client, compute only the metrics that every environment has. An agent without scored rollouts has
    only `ledger`, `failed_tasks` and the pessimistic mean. If an agent does not return its metrics, write those of
    the other agents and raise `DataError`.
    """
    ledgers = await asyncio.to_thread(outcomes_by_agent, files)
    return await aggregate_all(client, [files.results], files.metrics, ledgers=ledgers)


async def aggregate_all(
    client: ServerClient | None,
    results: Sequence[Path],
    written: Path,
    *,
    ledgers: Mapping[str, AgentOutcomes] | None = None,
    server_of: Callable[[str], str] = str,
    rollouts: Iterable[Row] | None = None,
) -> list[AgentMetrics]:
    """Aggregate the rollouts of several files and save the metrics as `written`, with ledgers if they are passed.

    If `rollouts` are passed, aggregate them instead of those in the files.

    `server_of` maps an agent to the server that computes its metrics. Default: the agent itself. If there is no
    client, call no server, and compute only the metrics that every environment has.
    """
    ledgers = ledgers or {}
    gate = asyncio.Semaphore(ASKED_AT_ONCE)
    with ExitStack() as stack:
        named = ((f"results[{number}]", row) for number, row in enumerate(rollouts or ()))
        placed = _rollouts_in(results) if rollouts is None else named
        asked = await asyncio.to_thread(_asked, placed, written.parent, stack)
        _forget(written)
        answers = await asyncio.gather(
            *(
                _metrics_of(client, agent, server_of(agent), asked.get(agent), gate)
                for agent in sorted({*asked, *ledgers})
            )
        )
    metrics = [_with_ledger(_with_intervals(answer), ledgers) for answer in answers if not isinstance(answer, str)]
    if metrics:
        _write(written, metrics)
    if problems := [answer for answer in answers if isinstance(answer, str)]:
        others = f" {written} has the metrics of the other agents." if metrics else ""
        kept = ", ".join(map(str, results))
        raise DataError(f"the rollouts are saved in {kept}, but {'; '.join(problems)}.{others}")
    return metrics


def _with_intervals(metrics: AgentMetrics) -> AgentMetrics:
    """Add 95 % confidence intervals for the mean reward and for the largest pass@k, if there are several tasks."""
    rewards = _rewards_by_task(metrics["group_level_metrics"])
    if len(rewards) < 2:
        return metrics
    agent_metrics = metrics["agent_metrics"]
    intervals = {"reward": mean_interval(rewards)}
    for name, value in highest_k_metrics(agent_metrics, "pass@{k}", ["accuracy"]).items():
        k = int(name.removeprefix("pass@").partition("/")[0])
        # Skip a `k` above the number of rollouts per task: the environment has grouped the rollouts in its own way.
        if all(len(values) < k for values in rewards.values()):
            continue
        found = pass_at_k_interval(rewards, k)
        # Skip an accuracy that differs from the rewards' pass@k, because the interval is computed from the rewards.
        if isclose(100 * found.mean, value, abs_tol=1e-6):
            intervals[name] = found._replace(low=100 * found.low, high=100 * found.high)
    for name, interval in intervals.items():
        # Omit an interval of zero width. It means only that the rewards do not differ, not that the mean is exact.
        if 0 < interval.half_width < inf:
            agent_metrics |= {f"{CI_LOW}{name}": interval.low, f"{CI_HIGH}{name}": interval.high}
    return metrics


def _rewards_by_task(groups: Sequence[Mapping[str, object]]) -> dict[int, list[float]]:
    infos = [info if isinstance(info := group.get("rollout_infos"), list) else [] for group in groups]
    found = {
        place: [reward for info in each if isinstance(info, dict) and (reward := Row(info).reward) is not None]
        for place, each in enumerate(infos)
    }
    return {place: rewards for place, rewards in found.items() if rewards}


def _with_ledger(metrics: AgentMetrics, ledgers: Mapping[str, AgentOutcomes]) -> AgentMetrics:
    ledger = ledgers.get(metrics["agent_ref"]["name"])
    if ledger is None:
        return metrics
    agent_metrics = metrics["agent_metrics"]
    mean = agent_metrics.get(MEAN_REWARD) if ledger.scored else 0.0
    if isinstance(mean, int | float) and ledger.scored + ledger.failed.total():
        agent_metrics[PESSIMISTIC + MEAN_REWARD] = ledger.pessimistic(mean)
    for group in metrics["group_level_metrics"]:
        task, rollouts = Row(group).task_index, group.get("num_rollouts")
        # Add the number of planned rollouts, because the agent received only the scored ones.
        if task is not None and isinstance(rollouts, int) and (expected := ledger.planned_of[task]):
            group.update(completeness(rollouts, expected))
    echoed = ledger.echoed(agent_metrics)
    metrics["ledger"] = ledger.outcomes()
    metrics["failed_tasks"] = [task.as_dict() for task in ledger.failed_tasks]
    if echoed:
        metrics["row_fields"] = echoed
    return metrics


@dataclass(frozen=True)
class _Asked:
    """The request for the metrics of one agent's rollouts."""

    body: IO[bytes]
    is_integer: dict[str, bool] = field(default_factory=dict)
    """Whether a numeric or boolean field is an integer in all rollouts, keyed by the field's name."""

    def add(self, rollout: Mapping[str, object]) -> None:
        for name, value in rollout.items():
            if isinstance(value, int | float) and not name.startswith(PRIVATE_PREFIX):
                is_integer = isinstance(value, int) and not isinstance(value, bool)
                self.is_integer[name] = is_integer and self.is_integer.get(name, True)
        self.body.write(encode_json(rollout))

    def integer_fields(self) -> list[str]:
        return sorted(name for name, is_integer in self.is_integer.items() if is_integer)


def _rollouts_in(results: Sequence[Path]) -> Iterator[tuple[str, Row]]:
    """Yield the place of each rollout, as `file:line`, and the rollout."""
    for path in results:
        for line in read_lines(path):
            yield f"{path}:{line.number}", Row(line.row)


def _asked(rollouts: Iterable[tuple[str, Row]], folder: Path, stack: ExitStack) -> dict[str, _Asked]:
    """Return the request for each agent. Large bodies are kept on disk until they are sent."""
    asked: dict[str, _Asked] = {}
    for place, row in rollouts:
        agent = row.agent
        if agent is None:
            raise DataError(f"{place}: agent_ref.name is missing. Pass a file that a collection wrote.")
        of_agent = asked.get(agent)
        if of_agent is None:
            spooled = SpooledTemporaryFile(KEPT_IN_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 - the stack closes it
            of_agent = asked[agent] = _Asked(stack.enter_context(spooled))
            of_agent.body.write(b'{"verify_responses":[')
        else:
            of_agent.body.write(b",")
        of_agent.add(_stripped(row))
    for each in asked.values():
        each.body.write(b"]}")
    return asked


def _forget(path: Path) -> None:
    # Metrics of earlier rollouts must not remain next to new results, even if the next steps fail.
    path.unlink(missing_ok=True)


async def _metrics_of(
    client: ServerClient | None, agent: str, server: str, asked: _Asked | None, gate: asyncio.Semaphore
) -> AgentMetrics | str:
    """Return an agent's metrics, or an error message."""
    if asked is None:
        return _entry(agent, AggregateMetrics(), [])
    body, integers = asked.body, asked.integer_fields()
    if client is None:
        body.seek(0)
        rows = orjson.loads(body.read())["verify_responses"]
        return _entry(agent, compute_aggregate_metrics(rows), integers)
    timeouts = Timeouts(read_s=AGGREGATION_TIMEOUT_S, total_s=AGGREGATION_TIMEOUT_S)
    async with gate:
        body.seek(0)
        try:
            reply = await client.post(server, "/aggregate_metrics", data=body.read(), headers=JSON, timeouts=timeouts)
        except (ServerCallError, RolloutError) as error:
            return f"{server} did not return metrics: {error}"
    answer = await reply.read()
    try:
        if reply.ok:
            # Parse the reply without pydantic, because its parser accepts fewer levels than a result may have.
            return _entry(agent, AggregateMetrics.model_validate(loads_exact(answer)), integers)
    except ValueError:
        pass  # An invalid reply is reported below.
    problem = f"{server} did not return metrics: /aggregate_metrics returned {reply.status}: {readable(answer)}"
    return f"{problem}. {WHEN_TOO_LARGE}" if b"(max_request_bytes)" in answer else problem


def _entry(agent: str, found: AggregateMetrics, integers: list[str]) -> AgentMetrics:
    entry = AgentMetrics(agent_ref={"name": agent})
    if integers:
        entry["integer_fields"] = integers
    entry["group_level_metrics"], entry["agent_metrics"] = found.group_level_metrics, found.agent_metrics
    entry["key_metrics"] = found.key_metrics
    return entry


def _stripped(row: Row) -> Mapping[str, object]:
    kept = {key: value for key, value in row.fields.items() if key not in STRIPPED}
    return {**kept, "response": {"usage": row.usage}} if row.usage else kept


def _write(path: Path, metrics: list[AgentMetrics]) -> None:
    try:
        written = orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        written = dump_json(metrics)
    path.write_bytes(written)
