"""Collections of tasks whose rollouts are verified together: members that fail, return late or were stored earlier."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from omegaconf import OmegaConf
from starlette.requests import Request

from nemo_gym import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    JudgeFailed,
    ModelFailed,
    ServerLost,
    SimpleResourcesServer,
    SimpleResponsesAPIAgent,
    get_response_json,
    reply_to,
)
from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.process import OtherServer
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ConfigError, DataError, UsageError
from nemo_gym.http.internal import split_url
from nemo_gym.jsonl import dump_line
from nemo_gym.rollouts.collector import collect
from nemo_gym.rollouts.control.control import Control, Refused
from nemo_gym.rollouts.group_order import largest_group
from nemo_gym.rollouts.helper import RolloutCollectionHelper
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.opening import open_run
from nemo_gym.rollouts.reverify import Graders, Reverification, reverify
from nemo_gym.rollouts.stored_rollouts import ReverificationJob, Stored
from nemo_gym.rollouts.tasks import TaskPlan
from nemo_gym.schemas.row import Row as RowView
from nemo_gym.testing import make_server, on_a_port, reply
from tests.conftest import PATIENCE_S
from tests.rows import rows_of

Row = dict[str, Any]
Act = Callable[[RowView], Awaitable[None]]
AGENT, SERVER = "agent", "shares"


class SharesRequest(BaseVerifyRequest):
    run: str = ""


class Shares(SimpleResourcesServer):
    """Rewards each answer with its share of the group's characters."""

    async def verify_group(self, bodies: Sequence[SharesRequest]) -> list[BaseVerifyResponse]:
        await acts.verifying()
        assert len({body.run for body in bodies}) == 1, "two runs were mixed"
        lengths = [len(body.response.last_text) for body in bodies]
        return [
            BaseVerifyResponse.grade(body, reward=own / sum(lengths), lengths=lengths)
            for body, own in zip(bodies, lengths, strict=True)
        ]


async def _nothing(*_: object) -> None:
    return None


class Answering(SimpleResponsesAPIAgent):
    """Answers with as many characters as the number of the repeat, from 1, and does what the test asks for."""

    USED: ClassVar[str] = SERVER

    async def responses(self, body: BaseRunRequest) -> None:
        raise NotImplementedError

    async def run(self, request: Request) -> Any:
        row = RowView(await request.json())
        await acts.before(row)
        body = {**row.fields, "response": reply("x" * (row.key.repeat + 1)).model_dump(mode="json")}
        calling = asyncio.ensure_future(self.server_client.post(self.USED, "/verify", json=body))
        await acts.waiting(row, calling)
        graded = await get_response_json(
            await reply_to(calling, server=self.USED, during="/verify", otherwise=ModelFailed)
        )
        await acts.after(row)
        return graded


class AnsweringElsewhere(Answering):
    USED = "other_shares"


class _Acts:
    def __init__(self) -> None:
        self.before: Act = _nothing
        self.waiting: Callable[[RowView, asyncio.Future[Any]], Awaitable[None]] = _nothing
        self.verifying: Callable[[], Awaitable[None]] = _nothing
        self.after: Act = _nothing
        self.groups: Any = None


acts = _Acts()


@pytest.fixture(autouse=True)
def begin_again():
    acts.__init__()


@asynccontextmanager
async def servers(**others: type[Answering]):
    """Serve an agent and its resources server over HTTP, and yield a function that returns clients for them.

    `others` are further agents by name. Each has its own resources server.
    """
    agents = {AGENT: Answering, **others}
    verifiers = [
        make_server(Shares, name=agent.USED, group_verification={"timeout_s": 1000}) for agent in agents.values()
    ]
    async with AsyncExitStack() as stack:
        addresses = {}
        for (name, agent), shares in zip(agents.items(), verifiers, strict=True):
            answering = make_server(agent, name=name, servers=[shares])
            for server, own, tier in (
                (agent.USED, shares, "resources_servers"),
                (name, answering, "responses_api_agents"),
            ):
                host, port, *_ = split_url(await stack.enter_async_context(on_a_port(own)))
                addresses[server] = OtherServer(tier, server, host, port)
        grouped = {name: agent.USED for name, agent in agents.items()}
        clients: list[ServerClient] = []

        def client() -> ServerClient:
            clients.append(
                ServerClient(
                    head_server_config=BaseServerConfig(host=addresses[AGENT].host, port=addresses[AGENT].port),
                    global_config_dict=OmegaConf.create({}),
                    address_book=AddressBook(dict(addresses), task_rules=TaskRules(grouped=grouped)),
                )
            )
            return clients[-1]

        client.groups = acts.groups = verifiers[0]._nemo_gym_groups  # type: ignore[attr-defined]
        yield client
        for each in clients:
            await each.aclose()


def written(path: Path, tasks: int = 1, **fields: object) -> Path:
    """Write an input of this many tasks."""
    rows = [{"responses_create_params": {"input": f"Task {number}"}, **fields} for number in range(tasks)]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


async def collected(
    client: ServerClient, input_file: Path, name: str = "out", on_record=None, steer=None, **settings: Any
):
    """Collect the input's rollouts, 4 of each task by default."""
    files = RunFiles(results=input_file.with_name(f"{name}.jsonl"))
    given = {"agent_name": AGENT, "num_repeats": 4, "retry_pause_s": 0, **settings}
    plan = TaskPlan(
        input_file,
        CollectionSettings(output_jsonl_fpath=files.results, **given),
        client.agent_names(),
        rules=client.address_book.task_rules,
    )
    with open_run(plan, files) as run:
        control = Control(run)
        if steer:
            steer(control)
        await collect(client, run, control=control, **({"on_record": on_record} if on_record else {}))
    return files


def rewards(rows: list[Row]) -> dict[int, float]:
    return {row["_ng_rollout_index"]: row["reward"] for row in rows}


def failing(cause: Exception, repeat: int, attempts: int = 1000) -> Act:
    """Fail the first attempts of a repeat."""

    async def act(row: RowView) -> None:
        if row.key.repeat == repeat and row.attempt < attempts:
            raise cause

    return act


async def test_rewards_depend_on_the_whole_group(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=3))
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert len(rows) == 12
    for row in rows:
        assert row["lengths"] == [1, 2, 3, 4]
        assert row["reward"] == (row["_ng_rollout_index"] + 1) / 10
        assert row["_ng_group"] == {"size": 4, "compared": 4, "missing": []}


async def test_failed_member_is_named_to_the_others(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    assert {str(row["_ng_group"]["missing"]) for row in rows_of(files.results)} == {"['1: model_failed']"}
    assert [row["_ng_failure_class"] for row in rows_of(files.failures)] == ["model_failed"]


def expire_once_waiting(members: int) -> None:
    """End the wait for the rest of a group as soon as this many members wait.

    With a short timeout, it could end before.
    """

    async def expire(row: RowView, calling: asyncio.Future[Any]) -> None:
        groups = acts.groups.groups
        if row.key.repeat == 0:
            async with asyncio.timeout(PATIENCE_S):
                while not (ready := [each for each in groups._all() if len(each.waiting) == members]):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            groups._expire(ready[0])

    acts.waiting = expire


async def test_lost_news_of_a_failure_only_cost_time(tmp_path, caplog):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    expire_once_waiting(3)
    async with servers() as client:
        without_server = client()
        without_server.address_book.servers.pop(SERVER)
        files = await collected(without_server, written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    assert {str(row["_ng_group"]["missing"]) for row in rows_of(files.results)} == {"['1: not arrived in 1000 s']"}
    assert "shares was not informed about the ended rollouts of task 0: no server is named 'shares'" in caplog.text


async def test_retried_member_is_waited_for(tmp_path):
    acts.before = failing(ServerLost("the agent was restarted"), repeat=2, attempts=2)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert len(rows_of(files.failures)) == 2


async def test_member_whose_reward_was_lost_is_compared_again(tmp_path):
    others_are_recorded = asyncio.Event()
    ended: Counter[str] = Counter()

    async def lose_the_reward(row: RowView) -> None:
        if row.key.repeat == 0 and not row.attempt:
            await others_are_recorded.wait()
            raise ServerLost("the agent was restarted")

    def on_record(record, summary) -> None:
        ended[record.outcome] += 1
        if ended.total() == 3:
            others_are_recorded.set()

    acts.after = lose_the_reward
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


async def test_member_lost_during_verification_is_scored(tmp_path):
    is_verifying, is_sent_again, others_are_recorded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_verifying.set()
        await is_sent_again.wait()

    async def lose_the_call(row: RowView, calling: asyncio.Future[Any]) -> None:
        if row.key.repeat == 0 and not row.attempt:
            await is_verifying.wait()
            calling.cancel()
            raise ServerLost("the agent was restarted")

    async def wait_for_others(row: RowView) -> None:
        if row.attempt:
            is_sent_again.set()
            await others_are_recorded.wait()

    def on_record(record, summary) -> None:
        if summary.scored == 3:
            others_are_recorded.set()

    acts.verifying, acts.waiting, acts.before = hold, lose_the_call, wait_for_others
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
        assert len(client.groups.groups) == 0
    assert rewards(rows_of(files.results)) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}
    assert {row["_ng_group"]["compared"] for row in rows_of(files.results)} == {4}


async def test_failure_is_written_before_others_are_informed(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    failed_first: list[bool] = []

    async def look() -> None:
        failed_first.append((tmp_path / "out_failures.jsonl").read_bytes() != b"")

    acts.verifying = look
    async with servers() as client:
        await collected(client(), written(tmp_path / "in.jsonl"))
    assert failed_first == [True]


async def test_failed_members_are_compared_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl", tasks=2)
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), source, max_attempts=1)
        assert len(rows_of(files.results)) == 6
        acts.before = _nothing
        sent = Counter()

        async def count(row: RowView) -> None:
            sent[str(row.key)] += 1

        acts.before = count
        await collected(client(), source, max_attempts=3, resume_from_cache=True)
    assert sent == {"0:1": 1, "1:1": 1}
    late = [row for row in rows_of(files.results) if row["_ng_rollout_index"] == 1]
    assert [(row["reward"], row["lengths"], row["_ng_group"]["compared"]) for row in late] == [
        (0.2, [1, 2, 3, 4], 4)
    ] * 2


async def test_given_up_members_are_not_waited_for_after_resume(tmp_path):
    source = written(tmp_path / "in.jsonl")

    async def act(row: RowView) -> None:
        await failing(ModelFailed("no memory"), repeat=1)(row)
        await failing(InvalidTask("no such thing"), repeat=2)(row)

    acts.before = act
    async with servers() as client:
        files = await collected(client(), source, max_attempts=1)
        acts.before = _nothing
        await collected(client(), source, max_attempts=2, resume_from_cache=True)
    (late,) = [row for row in rows_of(files.results) if row["_ng_rollout_index"] == 1]
    assert (late["lengths"], late["_ng_group"]["missing"]) == ([1, 2, 4], ["2: invalid_task"])


async def test_added_repeats_are_compared_with_earlier_ones(tmp_path):
    source = written(tmp_path / "in.jsonl", tasks=2)
    async with servers() as client:
        await collected(client(), source, num_repeats=2)
        files = await collected(client(), source, num_repeats=4, resume_from_cache=True)
    rows = rows_of(files.results)
    assert len(rows) == 8
    assert {str(row["lengths"]) for row in rows if row["_ng_rollout_index"] > 1} == {"[1, 2, 3, 4]"}


async def test_members_beyond_the_wait_are_compared_later(tmp_path):
    others_are_recorded = asyncio.Event()

    async def be_late(row: RowView) -> None:
        if row.key.repeat == 3:
            await others_are_recorded.wait()

    def on_record(record, summary) -> None:
        if summary.scored == 3:
            others_are_recorded.set()

    acts.before = be_late
    expire_once_waiting(3)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), on_record=on_record)
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert [row["_ng_group"]["missing"] for row in rows] == [["3: not arrived in 1000 s"]] * 3 + [[]]
    assert rows[-1]["lengths"] == [1, 2, 3, 4]


def hold_last_members(others: int) -> None:
    """Hold the last member of each group until this number of others has been sent."""
    sent, are_sent = Counter(), asyncio.Event()

    async def act(row: RowView) -> None:
        if row.key.repeat == 3:
            await are_sent.wait()
        sent["others"] += 1
        if sent["others"] == others:
            are_sent.set()

    acts.before = act


async def test_runs_on_the_same_servers_do_not_mix(tmp_path):
    hold_last_members(2 * 8 * 3)
    async with servers() as client:
        both = await asyncio.gather(
            *(
                collected(client(), written(tmp_path / f"{name}_in.jsonl", tasks=8, run=name), name)
                for name in ("one", "other")
            )
        )
    for files in both:
        assert Counter(row["reward"] for row in rows_of(files.results)) == {0.1: 8, 0.2: 8, 0.3: 8, 0.4: 8}


async def test_many_groups_at_once_are_all_complete(tmp_path):
    async with servers() as client:
        settings = {"num_repeats": 8, "num_samples_in_parallel": 1024}
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=64), **settings)
        assert len(client.groups.groups) == 0
    rows = rows_of(files.results)
    assert len(rows) == 512
    assert {row["_ng_group"]["compared"] for row in rows} == {8}


@pytest.mark.parametrize("settings", [{"dispatch_budget_s": 1e-6}, {"max_total_tokens": 1}])
async def test_budget_ends_between_groups(tmp_path, settings):
    async with servers() as client:
        source = written(tmp_path / "in.jsonl", tasks=6)
        files = await collected(client(), source, num_repeats=12, num_samples_in_parallel=12, **settings)
    assert all(row["_ng_group"]["compared"] == 12 for row in rows_of(files.results))
    assert len(rows_of(files.results)) % 12 == 0
    assert len(rows_of(files.results)) < 72


SETTINGS = {
    "num_repeats: 'shares' verifies all repeats of a task together, but a task of agent 'agent' has only one "
    "repeat.": {"num_repeats": None},
    "interleave_repeats: 'shares' verifies": {"interleave_repeats": True},
    "until_halfwidth: 'shares' verifies": {"until_halfwidth": 0.1},
    "num_samples_in_parallel=3: 'shares' verifies all repeats of a task together, and a task has 4 repeats, so at "
    "least 4 rollouts must run at once.": {"num_samples_in_parallel": 3},
    "num_samples_in_parallel=auto: ": {"num_samples_in_parallel": "auto"},
}


@pytest.mark.parametrize("verb", ["drain", "pause"])
async def test_drain_and_pause_begin_between_groups(tmp_path, verb):
    controls: list[Control] = []

    async def steer(row: RowView) -> None:
        if row.key == (1, 0):
            getattr(controls[0], verb)()

    def on_record(record, summary) -> None:
        if summary.scored == 8:
            controls[0].resume()

    acts.before = steer
    async with servers() as client:
        tasks = written(tmp_path / "in.jsonl", tasks=3)
        files = await collected(client(), tasks, on_record=on_record, steer=controls.append, num_samples_in_parallel=4)
    complete = Counter(row["_ng_task_index"] for row in rows_of(files.results))
    assert complete == ({0: 4, 1: 4} if verb == "drain" else {0: 4, 1: 4, 2: 4})
    assert {row["_ng_group"]["compared"] for row in rows_of(files.results)} == {4}


async def test_concurrency_below_a_group_is_refused(tmp_path):
    controls: list[Control] = []
    refused: list[str] = []

    async def retune(row: RowView) -> None:
        for wanted in (3, None):
            with pytest.raises(Refused) as error:
                controls[0].set_concurrency(wanted)
            refused.append(str(error.value))
        assert controls[0].set_concurrency(4)["concurrency"] == 4

    acts.before = retune
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"), steer=controls.append)
    assert len(rows_of(files.results)) == 4
    assert all("at least 4 must run at once" in each for each in refused)


async def test_settings_that_break_groups_are_refused(tmp_path):
    async with servers() as client:
        source = written(tmp_path / "in.jsonl")
        files = await collected(client(), source)
        before = files.results.read_bytes()
        for message, settings in SETTINGS.items():
            with pytest.raises(ConfigError) as error:
                await collected(client(), source, overwrite=True, **settings)
            assert str(error.value).startswith(message)
    assert files.results.read_bytes() == before


@pytest.mark.parametrize("grouped", [{"a": "shares"}, {"a": "shares", "b": "other"}, {"b": "shares"}])
def test_rows_that_never_form_a_group_are_refused(tmp_path, grouped):
    path, settings = tmp_path / "rows.jsonl", CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": repeat, "agent_ref": {"name": "a" if repeat < 2 else "b"}}
        for repeat in range(4)
    ]
    path.write_bytes(b"".join(map(dump_line, rows)))
    with pytest.raises(DataError, match=r"task 0 has rows of the agents 'a' and 'b'.* different _ng_task_index"):
        largest_group(path, grouped, settings)
    # If both agents use the same server, it verifies their rollouts together.
    assert largest_group(path, {"a": "shares", "b": "shares"}, settings) == 4


def job_of(files: RunFiles, **settings: Any) -> ReverificationJob:
    return ReverificationJob(
        materialized_inputs_jsonl_fpath=files.materialized,
        rollouts_jsonl_fpath=files.results,
        output_jsonl_fpath=files.results.with_name("again.jsonl"),
        force=True,
        **settings,
    )


async def regraded(client: ServerClient, files: RunFiles, **settings: Any) -> list[Row]:
    graders = Graders({AGENT: SERVER}, in_groups=frozenset({SERVER}))
    planned = Reverification.plan(Stored.read(job_of(files, **settings)), graders)
    begun = planned.begin(await planned.output(client))
    await reverify(client, planned, begun)
    return rows_of(begun.files.results)


async def test_stored_groups_get_the_same_rewards_again(tmp_path):
    acts.before = failing(ModelFailed("no memory"), repeat=1)
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=5))
        lines = files.results.read_bytes().splitlines(keepends=True)
        # Results are in the order in which rollouts end.
        files.results.write_bytes(b"".join(lines[::2] + lines[1::2]))
        again = await regraded(client(), files, num_samples_in_parallel=4)
    assert len(again) == 15
    for row in again:
        assert row["reward"] == (row["_ng_rollout_index"] + 1) / 8
        assert row["_ng_group"] == {"size": 4, "compared": 3, "missing": ["1: no stored rollout"]}


async def test_resumed_grading_compares_with_graded_members(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=2))
        await regraded(client(), files)
        output = files.results.with_name("unsafe_again.jsonl")
        output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:5]))
        again = await regraded(client(), files, resume_from_cache=True)
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in again}) == 8
    assert {row["_ng_group"]["compared"] for row in again} == {4}


async def test_resumed_judging_compares_with_graded_members(tmp_path):
    async def fail() -> None:
        raise JudgeFailed("the endpoint is down")

    acts.verifying = fail
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl", tasks=2))
        assert len(rows_of(files.failures)) == 8
        acts.verifying = _nothing
        await regraded(client(), files, judge_failed_only=True)
        output = files.results.with_name("unsafe_again.jsonl")
        output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:5]))
        again = await regraded(client(), files, judge_failed_only=True, resume_from_cache=True)
    assert Counter(row["reward"] for row in again) == {0.1: 2, 0.2: 2, 0.3: 2, 0.4: 2}
    assert {row["_ng_group"]["compared"] for row in again} == {4}


async def test_grading_too_few_at_once_is_refused(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
        with pytest.raises(ConfigError) as error:
            await regraded(client(), files, num_samples_in_parallel=3)
    assert str(error.value) == (
        "num_samples_in_parallel=3: the 4 rollouts of a task are graded together, so they must be graded at once. "
        "Set num_samples_in_parallel (--concurrency) to 4 or more."
    )


async def test_stored_tasks_of_several_servers_are_refused(tmp_path):
    async with servers() as client:
        files = await collected(client(), written(tmp_path / "in.jsonl"))
        rows = rows_of(files.materialized)
        rows[3]["agent_ref"]["name"] = "other"
        files.materialized.write_bytes(b"".join(map(dump_line, rows)))
        graders = Graders({AGENT: SERVER, "other": "plain"}, in_groups=frozenset({SERVER}))
        with pytest.raises(DataError, match="task 0 has rows of the agents 'agent' and 'other'"):
            Reverification.plan(Stored.read(job_of(files)), graders)


class Helper(RolloutCollectionHelper):
    """A helper for these servers, which have no head server."""

    client: Any = None

    def setup_server_client(self, head_server_config: Any = None) -> ServerClient:
        return self.client


@pytest.mark.parametrize("numbers", [True, False])
async def test_repeats_in_one_batch_are_a_group(numbers):
    rows = [
        {
            "responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "_ng_task_index": task,
            **({"_ng_rollout_index": repeat} if numbers else {}),
        }
        for task in (7, 9)
        for repeat in range(3)
    ]  # fmt: skip
    async with servers() as client:
        helper = Helper(client=client())
        ended = [await each for each in helper.run_examples(rows)]
        assert len(client.groups.groups) == 0
    assert sorted(result["reward"] for _, result in ended) == [1 / 6, 1 / 6, 2 / 6, 2 / 6, 3 / 6, 3 / 6]
    assert {id(row) for row, _ in ended} == set(map(id, rows))


async def test_tasks_of_different_servers_may_share_numbers():
    rows = [
        {
            "responses_create_params": {"input": "Hi"}, "agent_ref": {"name": name},
            "_ng_task_index": 0, "_ng_rollout_index": repeat,
        }
        for name in (AGENT, "other")
        for repeat in range(2)
    ]  # fmt: skip
    async with servers(other=AnsweringElsewhere) as client:
        ended = [(await each)[1] for each in Helper(client=client()).run_examples(rows)]
    assert Counter((row["agent_ref"]["name"], row["reward"]) for row in ended) == {
        (AGENT, 1 / 3): 1, (AGENT, 2 / 3): 1, ("other", 1 / 3): 1, ("other", 2 / 3): 1,
    }  # fmt: skip
    assert {row["_ng_group"]["size"] for row in ended} == {2}


async def test_batches_with_the_same_numbers_do_not_mix():
    hold_last_members(2 * 3)

    def batch(name: str) -> list[Row]:
        row = {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "_ng_task_index": 0}
        return [{**row, "_ng_rollout_index": repeat, "run": name} for repeat in range(4)]

    async with servers() as client:
        iterators = [Helper(client=client()).run_examples(batch(name)) for name in ("one", "other")]
        ended = [(await each)[1] for iterator in iterators for each in iterator]
    assert sorted(row["reward"] for row in ended) == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4]


def by_repeats(run: str = "") -> list[Row]:
    """Return the rows of three groups, with all first repeats first."""
    row = {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": AGENT}, "run": run}
    return [{**row, "_ng_task_index": task, "_ng_rollout_index": n} for n in range(3) for task in (4, 5, 6)]


@pytest.mark.parametrize("places", [3, 4])
async def test_batches_share_few_places(places):
    semaphore = asyncio.Semaphore(places)
    async with servers() as client:
        iterators = [
            Helper(client=client()).run_examples(by_repeats(run), semaphore=semaphore) for run in ("one", "other")
        ]
        ended = [(await each)[1] for iterator in iterators for each in iterator]
        # Another run holds places now, which does not make the semaphore too small.
        async with semaphore:
            iterator = Helper(client=client()).run_examples(by_repeats(), semaphore=semaphore)
        ended += [(await each)[1] for each in iterator]
    assert Counter(row["reward"] for row in ended) == {1 / 6: 9, 2 / 6: 9, 3 / 6: 9}


async def test_too_few_places_for_a_group_are_refused():
    async with servers() as client:
        with pytest.raises(UsageError) as error:
            Helper(client=client()).run_examples(by_repeats(), semaphore=asyncio.Semaphore(2))
    assert str(error.value) == (
        "run_examples: the semaphore lets 2 rollouts run at once, but the 3 rollouts of a task are verified together. "
        "Raise this limit to 3 or more."
    )
