"""A policy that the trainer changes while the servers of the run stay up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from nemo_gym.errors import InvalidTask, ModelFailed, UsageError
from nemo_gym.http.internal import split_url
from nemo_gym.training import SyncTrainingClient, TrainingClient
from tests.each_case import each_case
from tests.gateway import Call, Gateway, running_gateway

pytestmark = pytest.mark.slow

CONFIGS = (
    "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
KEY = "made-up-key-of-a-policy-3311"
DEAD = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway() as gateway:
        yield gateway


def started(workplace: Any, gateway: Gateway, *words: str) -> Any:
    return workplace.start_servers(
        f"+config_paths=[{','.join(CONFIGS)}]", f"+policy_base_url={gateway.url('configured')}",
        "+policy_api_key=configured-key-1122", "+policy_model_name=configured",
        "++policy_model.responses_api_models.vllm_model.request_tries=1", *words,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(shared_workplace, gateway):
    command = started(shared_workplace, gateway, "+allow_policy_override=true")
    yield command.head
    command.end()


@pytest.fixture
def client_of(run):
    return lambda **settings: TrainingClient(run, **settings)


def row(text, **fields):
    params = {"input": [{"role": "user", "content": text}]}
    return {"responses_create_params": params, "initial_count": 1, "expected_count": 3} | fields


async def rollouts_of(client, *rows, repeats=1):
    return [each async for group in client.rollouts(rows, repeats) for each in group.rollouts]


async def test_new_rollouts_use_the_new_policy(client_of, gateway):
    async with client_of() as client:
        (before,) = await rollouts_of(client, row("before"))
        client.set_policy([gateway.url("a"), gateway.url("b")], "step-1", api_key=KEY)
        after = await rollouts_of(client, *(row(f"after {number}") for number in range(6)))
        assert [client.staleness(each) for each in (before, *after)] == [1] + [0] * 6
    assert set(gateway.calls_of("before")) == {
        Call("configured", "Bearer configured-key-1122", "configured", "before")
    }
    calls = [gateway.calls_of(f"after {number}") for number in range(6)]
    # Each rollout has two turns, both at one address.
    assert [(len(each), len(set(each))) for each in calls] == [(2, 1)] * 6
    assert Counter(each[0].name for each in calls) == {"a": 3, "b": 3}
    assert {each[0][1:3] for each in calls} == {(f"Bearer {KEY}", "step-1")}
    assert (before.reward, [each.reward for each in after]) == (1.0, [1.0] * 6)
    assert (before.policy_version, {each.policy_version for each in after}) == (0, {1})
    assert (before.result["policy_version"], after[0].result["policy_version"]) == (0, 1)
    assert not [key for each in after for key in each.result if key in ("policy_base_url", "policy_api_key")]


async def test_idle_addresses_take_turns(client_of, gateway):
    async with client_of(in_flight=1) as client:
        client.set_policy([gateway.url("left"), gateway.url("right")])
        await rollouts_of(client, *(row(f"turn {number}") for number in range(4)))
    names = [call.name for number in range(4) for call in gateway.calls_of(f"turn {number}")[:1]]
    assert names == ["left", "right"] * 2


async def test_rollout_stays_with_its_policy(client_of, gateway):
    async with client_of() as client:
        client.set_policy(gateway.url("old"))
        with gateway.holding("old"):
            running = asyncio.create_task(rollouts_of(client, row("stays")))
            await asyncio.to_thread(gateway.wait_for, "stays")
            client.set_policy(gateway.url("new"))
        (rollout,) = await running
        assert (rollout.policy_version, rollout.policy_version_at_end, client.staleness(rollout)) == (1, 1, 1)
    assert [call.name for call in gateway.calls_of("stays")] == ["old", "old"]
    # Without a key for the new address, none is sent.
    assert {call.key for call in gateway.calls_of("stays")} == {None}


@each_case(("urls", "at_end"), [("none", 2), ("same", 2)])
async def test_weights_replaced_in_place_change_the_version(client_of, gateway, urls, at_end):
    async with client_of() as client:
        client.set_policy(gateway.url("place"))
        with gateway.holding("place"):
            running = asyncio.create_task(rollouts_of(client, row(f"in place {urls}")))
            await asyncio.to_thread(gateway.wait_for, f"in place {urls}")
            client.set_policy(None if urls == "none" else gateway.url("place"))
        (rollout,) = await running
    assert (rollout.policy_version, rollout.policy_version_at_end) == (1, at_end)
    # The first call began before the change, and the second one after it.
    first, second = rollout.trajectory().turns
    assert first.versions == (1,) * len(first.sampled_ids)
    assert second.versions == (at_end,) * len(second.sampled_ids)
    assert {call.name for call in gateway.calls_of(f"in place {urls}")} == {"place"}


async def test_retried_rollout_counts_from_its_last_attempt(client_of, gateway):
    async with client_of() as client:
        client.set_policy(gateway.url("busy"))
        with gateway.busy("busy"):
            running = asyncio.create_task(rollouts_of(client, row("retried")))
            await asyncio.to_thread(gateway.wait_for, "retried")
            client.set_policy(gateway.url("free"), version=7)
            (rollout,) = await running
    assert [call.name for call in gateway.calls_of("retried")] == ["busy", "free", "free"]
    assert (rollout.reward, rollout.policy_version, rollout.result["_ng_attempt_index"]) == (1.0, 7, 1)


async def test_only_the_model_may_change(client_of, gateway):
    async with client_of() as client:
        client.set_policy(model="adapter-2")
        await rollouts_of(client, row("adapter"))
    assert {call[:3] for call in gateway.calls_of("adapter")} == {
        ("configured", "Bearer configured-key-1122", "adapter-2")
    }


async def test_addresses_stay_if_the_model_changes(client_of, gateway):
    async with client_of() as client:
        client.set_policy(gateway.url("kept"), "step-1", api_key=KEY)
        client.set_policy(model="step-2")
        (rollout,) = await rollouts_of(client, row("kept"))
    assert {call[:3] for call in gateway.calls_of("kept")} == {("kept", f"Bearer {KEY}", "step-2")}
    assert rollout.policy_version == 2


async def test_dead_policy_fails_the_rollout_by_name(client_of):
    async with client_of() as client:
        client.set_policy(DEAD, api_key=KEY)
        (rollout,) = await rollouts_of(client, row("dead"))
    assert isinstance(rollout.failure, ModelFailed)
    assert f"{DEAD}/chat/completions could not connect" in str(rollout.failure)
    assert (rollout.reward, rollout.policy_version, rollout.trajectory().is_masked) == (None, 1, True)
    assert KEY not in repr((rollout.result, rollout.failure.row))


async def test_rows_own_policy_wins(client_of, gateway):
    async with client_of() as client:
        client.set_policy(gateway.url("trainer"), api_key=KEY)
        await rollouts_of(client, row("own", policy_base_url=gateway.url("own")))
    assert {call[:2] for call in gateway.calls_of("own")} == {("own", None)}


@each_case(
    ("given", "message"),
    [
        ({"urls": []}, "urls is empty"),
        ({"urls": ["http://ok/v1", "localhost:8000"]}, "policy_base_url must be a URL .* is 'localhost:8000'"),
        ({"urls": DEAD, "api_key": "two words"}, "policy_api_key must be printable"),
        ({"version": 0}, "version=0: it must be greater than 0"),
    ],
)
async def test_invalid_policy_is_rejected(client_of, given, message):
    async with client_of() as client:
        with pytest.raises(UsageError, match=message):
            client.set_policy(**given)
        assert client.policy_version == 0


async def test_run_that_forbids_it_names_the_key(shared_workplace, gateway):
    command = started(shared_workplace, gateway)
    async with TrainingClient(command.head) as client:
        with pytest.raises(UsageError, match=rf"{split_url(command.head).port} .* --allow-policy-override true"):
            client.set_policy(gateway.url("a"))
        client.set_policy()
        assert client.policy_version == 1
        own, plain = await rollouts_of(client, row("forbidden", policy_api_key=KEY), row("plain"))
        own, plain = (own, plain) if own.failure else (plain, own)
    assert isinstance(own.failure, InvalidTask)
    assert "contains policy_api_key, but" in str(own.failure)
    assert "--allow-policy-override true" in str(own.failure)
    assert KEY not in repr((own.result, own.failure.row))
    assert (plain.reward, plain.policy_version, gateway.calls_of("forbidden")) == (1.0, 1, [])
    command.end()


def test_trainer_without_event_loop_changes_the_policy(run, gateway):
    with SyncTrainingClient(run) as client:
        client.set_policy(gateway.url("sync"))
        ((rollout,),) = (group.rollouts for group in client.rollouts([row("sync")]))
        client.set_policy(version=5)
        assert (client.policy_version, client.staleness(rollout)) == (5, 4)
        with pytest.raises(UsageError, match="urls is empty"):
            client.set_policy([])
    assert {call.name for call in gateway.calls_of("sync")} == {"sync"}
