"""The verbs of `ng eval ctl`, sent to real collections: what they change, and that each rollout is counted once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat

import pytest

from nemo_gym.rollouts.control.calling import NotListening, ask, find
from nemo_gym.rollouts.control.control import Refused
from nemo_gym.rollouts.control.listening import MOST_CONNECTIONS
from nemo_gym.rollouts.control.registry import address_of
from tests.conftest import PATIENCE_S


def expect_ledger(run):
    """Check that planned = scored + failed + unresolved, and that no result is there twice."""
    summary = run.summary
    assert summary.planned == summary.scored + summary.failed + summary.unresolved
    assert len(run.keys) == len(set(run.keys)) == summary.scored
    assert run.record["outcomes"]["planned"] == summary.planned
    assert run.record["outcomes"]["scored"] == summary.scored


async def test_paused_collection_starts_nothing_until_resumed(begin, make_task, agent):
    live = await begin([make_task(n, act="held") for n in range(6)], num_samples_in_parallel=2)
    await live.until(lambda status: status["running"] == 2)
    assert await live.ask("pause") == {"changed": True}
    assert await live.ask("pause") == {"changed": False}
    agent.release()
    status = await live.until(lambda status: status["scored"] == 2)
    assert status["state"] == "paused"
    assert status["running"] == 0
    assert len(agent.state()["begun"]) == 2
    assert await live.ask("resume") == {"changed": True}
    run = await live.collecting
    assert run.summary.scored == 6
    expect_ledger(run)


@pytest.mark.parametrize(("first", "then"), [(2, 5), (5, 2)])
async def test_concurrency_can_be_changed(begin, make_task, agent, first, then):
    rows = [make_task(n, act="held") for n in range(first)]
    rows += [make_task(n, act="slow", lasts_s=0.05) for n in range(first, 60)]
    live = await begin(rows, num_samples_in_parallel=first)
    await live.until(lambda status: status["running"] == first)
    assert (await live.ask("concurrency", wanted=then))["concurrency"] == then
    assert (await live.ask("concurrency", wanted=then))["changed"] is False
    agent.release()
    await live.until(lambda status: status["running"] == then and status["scored"] > first)
    run = await live.collecting
    assert run.summary.scored == 60
    assert agent.state()["most_at_once"] == max(first, then)
    assert run.record["concurrency"] == then


async def test_concurrency_can_become_adaptive(begin, make_task):
    rows = [make_task(n, act="slow", lasts_s=0.01) for n in range(400)]
    live = await begin(rows, num_samples_in_parallel=1)
    assert (await live.ask("concurrency"))["concurrency"] == 1
    assert (await live.until(lambda status: status["concurrency"] > 1))["is_adaptive"]
    run = await live.collecting
    assert run.record["concurrency_steps"]
    assert run.summary.scored == 400


async def test_cancel_fails_running_and_waiting_rollouts(begin, make_task, agent):
    live = await begin([make_task(0, act="held"), make_task(1, act="held")], num_samples_in_parallel=3, num_repeats=2)
    await live.until(lambda status: status["running"] == 3)
    assert await live.ask("cancel", task=1, repeat=1) == {"running": 0}
    assert await live.ask("cancel", task=0) == {"running": 2}
    await live.until(lambda status: status["failed"].get("cancelled") == 3)
    agent.release()
    run = await live.collecting
    assert run.keys == [(1, 0)]
    assert run.summary.failed_by_cause == {"cancelled": 3}
    assert all("ng eval ctl" in row["_ng_failure_message"] for row in run.failures)
    expect_ledger(run)


async def test_requeued_rollouts_run_again(begin, make_task, agent):
    rows = [
        make_task(0, act="fail_until", until=1, failure_class="environment_failed"),
        make_task(1, act="held"),
        make_task(2, act="fail_until", until=9, failure_class="environment_failed"),
    ]
    live = await begin(rows, max_attempts=5)
    await live.until(lambda status: sum(status["failed"].values()) == 2)
    assert await live.ask("requeue") == {"requeued": 2}
    # A rollout that runs again still counts as failed, so wait until only the held one is running.
    await live.until(lambda status: status["requeued"] == 0 and status["running"] == 1)
    assert await live.ask("requeue", task=0) == {"requeued": 0}
    assert await live.ask("requeue", task=2) == {"requeued": 1}
    await live.until(lambda status: status["requeued"] == 0 and status["running"] == 1)
    agent.release()
    run = await live.collecting
    assert run.keys == [(0, 0), (1, 0)]
    assert [row["_ng_attempt_index"] for row in run.failures if row["number"] == 2] == [0, 1, 2]
    assert [row["_ng_attempt_index"] for row in run.results if row["number"] == 0] == [1]
    expect_ledger(run)


async def test_token_limit_ends_collection_with_requeued_rollouts(begin, make_task, agent):
    rows = [
        make_task(0),
        *(make_task(n, act="fail_until", until=1, failure_class="environment_failed") for n in range(1, 4)),
        make_task(4, act="held"),
    ]
    live = await begin(rows, max_total_tokens=28)
    await live.until(lambda status: status["scored"] == 1 and sum(status["failed"].values()) == 3)
    assert await live.ask("requeue") == {"requeued": 3}
    agent.release()
    async with asyncio.timeout(PATIENCE_S):
        run = await live.collecting
    # Each rollout uses seven tokens.
    assert run.summary.scored == 4
    assert run.summary.ended_by == "max_total_tokens: another rollout would probably exceed 28 tokens"
    expect_ledger(run)


async def test_discarded_result_after_a_failure_can_run_again(begin, make_task, agent):
    live = await begin([make_task(0, act="discard_second"), make_task(1, act="held")])
    await live.until(lambda status: status["running"] == 1 and status["failed"] == {"overloaded": 1})
    assert await live.ask("requeue") == {"requeued": 1}
    await live.until(lambda status: status["scored"] == 1)
    agent.release()
    run = await live.collecting
    assert (run.summary.scored, run.summary.failed, run.summary.unresolved) == (2, 0, 0)
    expect_ledger(run)


async def test_cancelled_task_can_run_again(begin, make_task, agent):
    live = await begin([make_task(0, act="held"), make_task(1, act="held")])
    await live.until(lambda status: status["running"] == 2)
    await live.ask("cancel", task=0)
    await live.until(lambda status: status["failed"].get("cancelled") == 1)
    assert await live.ask("requeue", task=0, repeat=0) == {"requeued": 1}
    await live.until(lambda status: status["running"] == 2)
    agent.release()
    run = await live.collecting
    assert run.keys == [(0, 0), (1, 0)]
    expect_ledger(run)


async def test_drained_collection_ends_with_running_rollouts(begin, make_task, agent, run_again):
    live = await begin([make_task(n, act="held") for n in range(5)], num_samples_in_parallel=2)
    await live.until(lambda status: status["running"] == 2)
    assert await live.ask("drain") == {"changed": True, "running": 2}
    assert (await live.ask("drain"))["changed"] is False
    agent.release()
    run = await live.collecting
    assert (run.summary.scored, run.summary.unresolved) == (2, 3)
    assert "drain" in run.record["ended_by"]
    expect_ledger(run)
    assert (await run_again()).summary.scored == 5


async def test_drain_ends_a_paused_collection(begin, make_task, agent):
    live = await begin([make_task(n, act="held") for n in range(5)], num_samples_in_parallel=2)
    await live.ask("pause")
    await live.ask("drain")
    agent.release()
    assert (await live.collecting).summary.scored == 2


async def test_status_says_how_long_the_rest_takes(begin, make_task, agent):
    live = await begin([make_task(0), *(make_task(n, act="held") for n in (1, 2, 3))])
    status = await live.until(lambda status: status["scored"] == 1)
    assert status["left_s"] > 0
    await live.ask("pause")
    assert (await live.ask("status"))["left_s"] is None
    await live.ask("resume")
    agent.release()
    await live.collecting


async def test_every_verb_is_recorded(begin, make_task, agent):
    live = await begin([make_task(n, act="held") for n in range(3)])
    await live.ask("pause")
    await live.ask("concurrency", wanted=7)
    await live.ask("cancel", task=2)
    await live.ask("resume")
    agent.release()
    entries = (await live.collecting).record["control"]
    assert [entry["verb"] for entry in entries] == ["pause", "concurrency", "cancel", "resume"]
    assert entries[1]["wanted"] == 7
    assert entries[2]["task"] == 2
    assert all(entry["at"] and "answer" in entry for entry in entries)


@pytest.mark.parametrize(
    ("verb", "arguments", "problem"),
    [
        ("explode", {}, "verb"),
        ("cancel", {}, "cancel needs a task. Set `task` to the task's index"),
        ("cancel", {"task": -1}, "task"),
        ("requeue", {"repeat": 1}, "a repeat needs a task. Set `task` to the task's index"),
        ("concurrency", {"wanted": 0}, "wanted"),
        ("pause", {"until": "tomorrow"}, "until"),
    ],
)
async def test_invalid_requests_are_refused(begin, make_task, agent, verb, arguments, problem):
    live = await begin([make_task(0, act="held")])
    with pytest.raises(Refused, match=problem):
        await live.ask(verb, **arguments)
    agent.release()
    assert (await live.collecting).summary.scored == 1


async def test_stop_is_refused_without_a_command(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    with pytest.raises(Refused, match="only be stopped by the program"):
        await live.ask("stop")
    agent.release()
    await live.collecting


async def test_grouped_rollouts_cannot_run_again_alone(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    await live.ask("drain")
    with pytest.raises(Refused, match="it was drained"):
        await live.ask("requeue")
    agent.release()
    await live.collecting


async def test_only_its_user_may_open_the_socket(begin, make_task, agent, tmp_path):
    live = await begin([make_task(0, act="held")])
    (found,) = tmp_path.glob("nemo_gym-*/collections/*.sock")
    assert stat.S_IMODE(os.stat(found).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(found.parent).st_mode) == 0o700
    agent.release()
    await live.collecting
    assert not list(found.parent.iterdir())


async def test_garbage_does_not_disturb_the_collection(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    for line in (b"\n", b"\xff\xfe\n", b"[]\n", b"{" * 70_000):
        await send(live, line)
    assert (await live.ask("status"))["running"] == 1
    agent.release()
    assert (await live.collecting).summary.scored == 1


async def test_clients_that_do_not_read_delay_nothing(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    await live.until(lambda status: status["running"] == 1)
    path = find(live.output).socket
    with socket.socket(socket.AF_UNIX) as client, address_of(path) as address:
        client.connect(address)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(b'{"verb": "status"}\n' * 100)
                await asyncio.sleep(0)
        agent.release()
        async with asyncio.timeout(PATIENCE_S):
            assert (await live.collecting).summary.scored == 1


async def test_connections_are_limited(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    with contextlib.ExitStack() as clients, address_of(find(live.output).socket) as address:
        connections = [clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MOST_CONNECTIONS + 9)]
        for connection in connections:
            connection.connect(address)
            # The collection accepts it in this loop.
            await asyncio.sleep(0.001)
        last = connections[-1]
        last.settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.to_thread(last.recv, 1) == b""
    async with asyncio.timeout(PATIENCE_S):
        # The collection has to notice that the others are gone.
        while True:
            with contextlib.suppress(NotListening):
                await live.ask("status")
                break
    await live.until(lambda status: status["running"] == 1)
    agent.release()
    assert (await live.collecting).summary.scored == 1


async def send(live, data):
    def exchange():
        with socket.socket(socket.AF_UNIX) as connection:
            with address_of(find(live.output).socket) as address:
                connection.connect(address)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            return connection.recv(1000)

    return await asyncio.to_thread(exchange)


def test_missing_collection_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(NotListening, match=r"results/x\.jsonl: no collection is running"):
        find("results/x.jsonl")


async def test_unknown_name_lists_the_running_ones(begin, make_task, agent):
    live = await begin([make_task(0, act="held")])
    with pytest.raises(NotListening, match=r"no collection matches 'other\.jsonl'.*out\.jsonl"):
        find("other.jsonl")
    collection = find(None)
    assert find(collection.run_id[:6]) == collection
    assert find(str(collection.output)) == collection
    assert find(str(collection.output.with_suffix(""))) == collection
    # Their names suffice if no other collection has the same one.
    assert find("out.jsonl") == find("out") == collection
    agent.release()
    await live.collecting
    with pytest.raises(NotListening):
        ask(collection, "status")
