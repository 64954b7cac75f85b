"""The training client with real servers: groups, limits, failures and tokens."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import traceback
from collections import Counter
from contextlib import aclosing
from itertools import count, islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.errors import DataError, EnvironmentFailed, HeadServerNotFoundError, InvalidTask, LaunchError, UsageError
from nemo_gym.jsonl import dump_line, read_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import read
from nemo_gym.rollouts.ledger_check import agree
from nemo_gym.schemas.row import Row
from nemo_gym.training import Curriculum, SyncTrainingClient, TrainingClient
from nemo_gym.training.checkpoint import group_of, state_of
from nemo_gym.viewer.library import Library

pytestmark = pytest.mark.slow

COUNTING = """
import asyncio

from pydantic import ConfigDict

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    pause_s: float = 0.0
    fails_at: int = -1
    stuck_at: int = -1


class VerifyResponse(BaseVerifyResponse):
    most: int


class Counting(SimpleResourcesServer):
    _running: int = 0
    _most: int = 0

    async def verify(self, body: VerifyRequest) -> VerifyResponse:
        self._running += 1
        self._most = max(self._most, self._running)
        repeat = body.model_extra["_ng_rollout_index"]
        await asyncio.sleep(3600.0 if repeat == body.stuck_at else body.pause_s)
        self._running -= 1
        if repeat == body.fails_at:
            raise RuntimeError("the grading broke")
        reward = float("!" in body.response.output_text)
        return VerifyResponse(**body.model_dump(), reward=reward, most=self._most)
"""
AGENT = """
{name}_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: counting}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""
VLLM = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"


def started(workplace, endpoint, *words, model="echo"):
    """Start the environment, two agents and a model server that returns token ids."""
    workplace.environment("counting", COUNTING)
    config = workplace.folder / "resources_servers/counting/configs/counting.yaml"
    config.write_text(config.read_text() + AGENT.format(name="counting") + AGENT.format(name="other"))
    return workplace.start_servers(
        f"+config_paths=[{config},{VLLM}]", f"+policy_base_url={endpoint}/v1", "+policy_api_key=none",
        f"+policy_model_name={model}", *words,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(shared_workplace, endpoint):
    command = started(shared_workplace, endpoint)
    yield command.head
    command.end()


def row(text, agent="counting_agent", **fields):
    params = {"input": [{"role": "user", "content": text}]}
    return {"responses_create_params": params, "agent_ref": {"name": agent}} | fields


async def groups_of(client, *arguments, **settings):
    return [group async for group in client.rollouts(*arguments, **settings)]


async def test_each_task_is_a_group_of_repeats(run):
    rows = [row("hm"), row("ho!")]
    async with TrainingClient(run) as client:
        groups = {group.row["responses_create_params"]["input"][0]["content"]: group
                  for group in await groups_of(client, rows, 3)}  # fmt: skip
    assert {text: group.rewards for text, group in groups.items()} == {"hm": [0.0] * 3, "ho!": [1.0] * 3}
    assert groups["ho!"].row is rows[1]
    assert [each.result["_ng_rollout_index"] for each in groups["ho!"].rollouts] == [0, 1, 2]
    trajectory = groups["ho!"].rollouts[0].trajectory()
    assert "".join(map(chr, trajectory.prompt_ids)) == "ho!"
    assert "".join(map(chr, trajectory.completion_ids)) == "echo: ho!"
    assert (set(trajectory.mask), trajectory.reward) == ({1}, 1.0)


async def test_groups_arrive_as_they_are_completed(run):
    rows = [row("slow", pause_s=3600.0), row("quick"), row("quick")]
    async with TrainingClient(run) as client, aclosing(client.rollouts(rows, 2)) as groups:
        first = [await anext(groups) for _ in range(2)]
    assert [group.row["responses_create_params"]["input"][0]["content"] for group in first] == ["quick", "quick"]


async def test_ids_stay_unique_over_batches(run):
    async with TrainingClient(run) as client:
        batches = [await groups_of(client, [row("a", _ng_rollout_id="same")] * 2, 2) for _ in range(2)]
    numbers = Counter(
        (each.result["_ng_task_index"], each.result["_ng_rollout_index"])
        for groups in batches for group in groups for each in group.rollouts
    )  # fmt: skip
    assert (len(numbers), max(numbers.values())) == (8, 1)


async def test_sampling_overrides_every_row(run, seen):
    given = row("hm")
    given["responses_create_params"]["temperature"] = 0.1
    async with TrainingClient(run) as client:
        await groups_of(client, [given], 2, {"temperature": 0.9, "max_output_tokens": 5})
    asked = [each["body"] for each in seen() if "messages" in each["body"]]
    assert [(each["temperature"], each["max_tokens"]) for each in asked] == [(0.9, 5)] * 2
    assert given["responses_create_params"]["temperature"] == 0.1


async def test_rollouts_at_once_are_limited(run):
    async with TrainingClient(run, in_flight=3) as client:
        groups = await groups_of(client, [row("hm", pause_s=0.05) for _ in range(5)], 2)
    assert max(each.result["most"] for group in groups[1:] for each in group.rollouts) >= 2


async def test_rows_are_read_as_the_trainer_takes_groups(run):
    read: list[int] = []
    begins_another = asyncio.Event()

    def endless():
        while True:
            read.append(1)
            begins_another.set()
            yield row("hm")

    async with TrainingClient(run, in_flight=3) as client, aclosing(client.rollouts(endless(), 1)) as groups:
        for taken in range(1, 8):
            await anext(groups)
            # Three rollouts have ended and wait for the trainer; the next row is read and waits for a place.
            while len(read) < taken + 4:
                begins_another.clear()
                await begins_another.wait()
            assert len(read) <= taken + 2 * 3 + 1


@pytest.mark.parametrize(("failed_rollouts", "kept"), [("mask", [1.0, None, 1.0]), ("drop", [1.0, 1.0])])
async def test_failure_is_no_zero_and_is_counted(run, failed_rollouts, kept):
    async with TrainingClient(run, failed_rollouts=failed_rollouts) as client:
        (group,) = await groups_of(client, [row("ho!", fails_at=1)], 3)
    assert [each.reward for each in group.rollouts] == kept
    assert (group.failed, group.rewards) == (1, [1.0, 1.0])
    failures = [each for each in group.rollouts if each.failure]
    assert [type(each.failure) for each in failures] == [EnvironmentFailed] * kept.count(None)
    assert all(each.trajectory().is_masked and each.trajectory().reward is None for each in failures)


async def test_failure_ends_the_batch_if_asked(run):
    async with TrainingClient(run, failed_rollouts="raise") as client:
        with pytest.raises(EnvironmentFailed, match="the grading broke") as failed:
            await groups_of(client, [row("slow", pause_s=30.0), row("ho!", fails_at=0)], 1)
        assert failed.value.row["responses_create_params"]["input"][0]["content"] == "ho!"
        # The client stays usable.
        assert len(await groups_of(client, [row("hm")])) == 1


async def test_closing_the_iterator_cancels_running_rollouts(run):
    async with TrainingClient(run) as client:
        async with aclosing(client.rollouts([row("hm"), row("slow", pause_s=3600.0)])) as groups:
            await anext(groups)
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_rest_of_a_group_is_cancelled_at_its_deadline(run):
    rows = [row("ho!", stuck_at=1), row("hm")]
    async with TrainingClient(run) as client:
        groups = {group.row.get("stuck_at"): group for group in await groups_of(client, rows, 3, group_timeout_s=2.0)}
    stuck = groups[1].rollouts[1]
    assert str(stuck.failure) == "its group was not complete 2 s after its first rollout began (group_timeout_s)"
    assert (stuck.reward, stuck.policy_version, stuck.trajectory().is_masked) == (None, 0, True)
    for group in groups.values():
        assert len(group.rewards) + group.failed == len(group.rollouts) == 3


async def test_rest_of_a_group_is_cancelled_by_its_row(run):
    rows = [row("ho!", stuck_at=1), row("hm")]
    async with TrainingClient(run, failed_rollouts="drop") as client, aclosing(client.rollouts(rows, 3)) as groups:
        assert (await anext(groups)).row is rows[1]
        assert client.cancel(row("ho!")) == 0
        cancelled = client.cancel(rows[0])
        assert client.cancel(rows[0]) == cancelled >= 1
        group = await anext(groups)
        assert (group.row is rows[0], group.failed, group.rewards) == (True, cancelled, [1.0] * (3 - cancelled))
        assert client.cancel(rows[0]) == 0


async def test_rollouts_of_a_cancelled_group_do_not_begin(run, tmp_path):
    rows = [row("ho!", stuck_at=0), row("hm")]
    record = tmp_path / "train.jsonl"
    async with TrainingClient(run, in_flight=1, record=record) as client:
        groups = client.rollouts(rows, 3)
        waiting = asyncio.create_task(anext(groups))
        while client.cancel(rows[0]) < 3:  # noqa: ASYNC110 - until the group has begun
            await asyncio.sleep(0)
        assert [(each.failure.failure_class, each.policy_version) for each in (await waiting).rollouts] == [
            ("cancelled", 0)] * 3  # fmt: skip
        assert (await anext(groups)).rewards == [0.0] * 3
        assert await anext(groups, None) is None
    assert [Row(line).key.repeat for line in read_rows(RunFiles(results=record).failures)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (row("a", "countng_agent"), "rows[1]: agent 'countng_agent' is not part of this run. Did you mean "),
        ({"responses_create_params": {"input": "a"}}, "rows[1]: agent_ref does not name an agent. The agents are: "),
    ],
)
async def test_row_without_valid_agent_is_named(run, given, message):
    async with TrainingClient(run) as client:
        with pytest.raises(InvalidTask) as invalid:
            await groups_of(client, [row("a"), given])
    assert str(invalid.value).startswith(message)


@pytest.mark.slow
async def test_end_of_the_run_ends_the_batch(workplace, endpoint):
    command = started(workplace, endpoint)
    async with TrainingClient(command.head) as client:
        groups = client.rollouts([row("hm"), *[row("slow", pause_s=3600.0)] * 3])
        assert (await anext(groups)).rewards == [0.0]
        await asyncio.to_thread(command.end)
        with pytest.raises(LaunchError, match=r"has ended.* Start it again, and open a new client"):
            await anext(groups)


async def test_misuse_is_explained(run):
    with pytest.raises(UsageError, match="async with"):
        await groups_of(TrainingClient(run), [row("a")])
    with pytest.raises(HeadServerNotFoundError, match=r"127\.0\.0\.1:1") as raised:
        async with TrainingClient("http://127.0.0.1:1"):
            pass
    assert "httpx" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(ValueError, match="not the address of a head server"):
        TrainingClient("localhost:11000")
    async with TrainingClient(run) as client:
        with pytest.raises(UsageError, match="repeats=0"):
            await groups_of(client, [row("a")], 0)


def test_trainer_without_event_loop_iterates_groups(run):
    with SyncTrainingClient(run, in_flight=4) as client:
        groups = list(client.rollouts([row("ho!") for _ in range(4)], 2))
        assert [group.rewards for group in groups] == [[1.0, 1.0]] * 4
        for group in client.rollouts([row("hm"), row("slow", pause_s=3600.0)]):
            assert group.rewards == [0.0]
            break
    assert "nemo_gym training" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(HeadServerNotFoundError):
        SyncTrainingClient("http://127.0.0.1:1").__enter__()
    assert "nemo_gym training" not in [thread.name for thread in threading.enumerate()]


def test_interrupted_trainer_can_continue(run):
    with SyncTrainingClient(run) as client:
        main = threading.main_thread().ident
        threading.Timer(1.0, signal.pthread_kill, [main, signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            list(client.rollouts([row("slow", pause_s=3600.0)]))
        assert [group.rewards for group in client.rollouts([row("ho!")])] == [[1.0]]


def test_unfinished_groups_end_with_the_client(run):
    with SyncTrainingClient(run) as client:
        groups = client.rollouts([row("hm"), row("slow", pause_s=3600.0)])
        assert next(groups).rewards == [0.0]
    with pytest.raises(UsageError, match="the client is not open: use 'with SyncTrainingClient"):
        next(groups)


def test_sync_client_must_be_opened(run):
    client = SyncTrainingClient(run)
    with pytest.raises(UsageError, match="the client is not open"):
        next(client.rollouts([row("hm")]))
    with pytest.raises(UsageError, match="the client is not open"):
        client.set_policy(model="other")


async def test_documented_loop_runs(run, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(map(dump_line, [row("ho!"), row("hm")])))
    page = Path(__file__).parents[2].joinpath("docs/training/training.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    names: dict[str, Any] = {}
    exec(code.replace("http://127.0.0.1:11000", run), names)
    steps = [step async for step in names["train"](rows)]
    assert [advantage for _, advantage in steps] == [0.0] * 16
    assert {"".join(map(chr, sequence.completion_ids)) for sequence, _ in steps} == {"echo: ho!", "echo: hm"}


# Dynamic sampling


async def test_step_samples_until_it_has_enough_groups(run):
    read, asked = [], []

    def rows():
        for number in count():
            read.append(number)
            yield row("ho!" if number % 3 else "hm", number=number)

    def is_wanted(group):
        asked.append(group.row["number"])
        return group.rewards == [1.0, 1.0]

    source, taken = rows(), []
    async with TrainingClient(run, in_flight=12) as client:
        for _ in range(4):
            groups = await groups_of(client, source, 2, wanted=5, keep=is_wanted)
            assert [group.rewards for group in groups] == [[1.0, 1.0]] * 5
            taken += [group.row["number"] for group in groups]
            chosen = client.selection
            assert (chosen.kept, chosen.kept - chosen.carried + chosen.dropped <= 15) == (5, True)
        # Each group was judged once, and each one that was kept has reached the trainer or is carried over.
        carried, owed = [group.row["number"] for group in client._carried], [each["number"] for each in client._owed]
    assert len(set(asked)) == len(asked)
    assert sorted(number for number in asked if number % 3) == sorted(taken + carried)
    assert sorted({*asked, *owed}) == read


async def test_step_ends_with_too_few_groups_at_its_limit(run):
    async with TrainingClient(run) as client:
        assert (
            await groups_of(client, (row("hm") for _ in count()), 2, wanted=2, keep=lambda group: False, most=2) == []
        )
        assert (client.selection.dropped, client.selection.dropped_share) == (4, 1.0)
        # Rows that end earlier end the step, too.
        assert len(await groups_of(client, [row("hm")] * 2, 2, wanted=5)) == 2
        with pytest.raises(UsageError, match="wanted=0, most=3: both must be at least 1"):
            await groups_of(client, [row("hm")], 2, wanted=0)


async def test_source_of_rows_gets_each_group(run):
    source = Curriculum([row("ho!" if number % 2 else "hm", number=number) for number in range(6)], new=1.0, rest=1000)
    async with TrainingClient(run, in_flight=4) as client:
        groups = await groups_of(client, source, 2, wanted=2, keep=lambda group: 1.0 in group.rewards)
    assert len(groups) == 2
    chosen = client.selection
    # Each row that was sampled is known, and carried groups are, too.
    assert source.counts["solved"] >= 2
    assert source.counts["unsolved"] >= chosen.dropped
    assert source.counts["new"] == 6 - source.counts["solved"] - source.counts["unsolved"]


async def test_restarted_trainer_loses_and_repeats_no_group(run):
    source, taken, states = [row("ho!" if number % 3 else "hm", number=number) for number in range(24)], [], []
    for _ in range(3):
        async with TrainingClient(run, in_flight=12) as client:
            if states:
                client.load_state_dict(orjson.loads(states[-1]))
                assert client.policy_version == len(states)
            rows = islice(source, orjson.loads(states[-1])["rows"] if states else 0, None)
            groups = await groups_of(client, rows, 2, wanted=4, keep=lambda group: group.rewards == [1.0, 1.0])
            taken += [group.row["number"] for group in groups]
            assert all(each.trajectory().completion_ids for group in groups for each in group.rollouts)
            client.set_policy()
            states.append(orjson.dumps(client.state_dict()))
            with pytest.raises(UsageError, match="has already begun rollouts"):
                client.load_state_dict(orjson.loads(states[-1]))
    last = orjson.loads(states[-1])
    waiting = [group["row"]["number"] for group in last["carried"]] + [each["number"] for each in last["owed"]]
    assert len(taken) == len(set(taken)) == 12
    assert not set(taken) & set(waiting)
    # Each row with mixed rewards below those that were not read is trained on or waits.
    assert {number for number in range(last["rows"]) if number % 3} <= {*taken, *waiting}


async def test_failed_rollouts_survive_a_checkpoint(run):
    async with TrainingClient(run) as client:
        (group,) = await groups_of(client, [row("ho!", fails_at=1)], 2)
    again = group_of(orjson.loads(orjson.dumps(state_of(group))))
    assert (again.row, again.rewards, again.failed) == (group.row, [1.0], 1)
    assert [type(each.failure) for each in again.rollouts] == [type(None), EnvironmentFailed]
    assert str(again.rollouts[1].failure) == str(group.rollouts[1].failure)


# Staleness


@pytest.mark.parametrize("on_stale", ["mask", "drop", "cancel"])
async def test_no_trained_rollout_is_staler_than_allowed(run, on_stale):
    rows = [row("ho!", pause_s=0.05 * (number % 5)) for number in range(24)]
    trained = masked = 0
    async with TrainingClient(run, in_flight=16, max_staleness=2, on_stale=on_stale) as client:
        async for group in client.rollouts(rows, 2):
            assert max([client.staleness(each) for each in group.rollouts if not Row(each.result).is_masked
                        and each.failure is None], default=0) <= 2  # fmt: skip
            trained += len(group.rewards)
            masked += 2 - len(group.rewards)
            client.set_policy()
    assert (trained + masked, trained > 0, masked > 0) == (48, True, True)


async def test_running_rollout_is_cancelled_when_it_is_too_stale(run):
    async with TrainingClient(run, max_staleness=1, on_stale="cancel") as client:
        groups = client.rollouts([row("slow", pause_s=3600.0), row("ho!")])
        assert (await anext(groups)).rewards == [1.0]
        client.set_policy()
        client.set_policy()
        (cancelled,) = (await anext(groups)).rollouts
        assert str(cancelled.failure) == "too stale: version 0 of the policy began it, and version 2 is newest"
        assert (cancelled.failure.failure_class, cancelled.policy_version) == ("cancelled", 0)
        assert await anext(groups, None) is None


# A record


async def test_rollouts_are_recorded_like_those_of_a_run(run, tmp_path):
    output = tmp_path / "train.jsonl"
    async with TrainingClient(run, record=output, in_flight=4) as client:
        first = await groups_of(client, [row("ho!", fails_at=1), row("hm")], 2)
        client.set_policy()
        client.note(step=1, loss=0.5)
        recorded = read(output)
        assert (recorded.planned, len(recorded.scored), recorded.failed, recorded.end) == (
            4, 3, {"environment_failed": 1}, None,
        )  # fmt: skip
        with pytest.raises(DataError, match=r"train\.jsonl"):
            async with TrainingClient(run, record=output):
                pass
        second = await groups_of(client, [row("hm")], 2)
    async with TrainingClient(run, record=output) as client:
        third = await groups_of(client, [row("ho!")], 2)
        async with aclosing(client.rollouts([row("hm"), row("slow", pause_s=3600.0)])) as groups:
            await anext(groups)
    recorded = read(output)
    assert (recorded.planned, len(recorded.scored), recorded.unresolved) == (10, 8, 1)
    assert [note.fields for note in recorded.notes] == [{"policy_version": 1}, {"step": 1, "loss": 0.5}]
    assert (len(recorded.sessions), recorded.end.state) == (2, "finished")
    results = {(each["_ng_task_index"], each["_ng_rollout_index"]): each for each in read_rows(output)}
    trained = [each.result for group in (*first, *second, *third) for each in group.rollouts if each.failure is None]
    for each in trained:
        written = results[each["_ng_task_index"], each["_ng_rollout_index"]]
        assert {name: written[name] for name in ("response", "reward", "policy_version")} == {
            name: each[name] for name in ("response", "reward", "policy_version")
        }
    assert [results[key]["policy_version"] for key in sorted(results)] == [0, 0, 0, 1, 1, 0, 0, 0]
    # The ledger agrees with the files, and the viewer shows the run.
    before = RunFiles(results=output).ledger.read_bytes()
    agree(RunFiles(results=output))
    assert RunFiles(results=output).ledger.read_bytes() == before
    library = Library([output], tmp_path / "cache")
    library.finish()
    shown = library.runs()[0].as_json()
    library.close()
    assert [shown[name] for name in ("state", "planned", "scored", "failed", "unresolved")] == [
        "finished",
        10,
        8,
        1,
        1,
    ]


async def test_output_of_a_collection_is_not_continued(run, tmp_path):
    (tmp_path / "x.jsonl").write_bytes(dump_line({"reward": 1.0}))
    with pytest.raises(DataError, match="Choose another file for record"):
        async with TrainingClient(run, record=tmp_path / "x.jsonl"):
            pass
