"""Several processes that serve one server give the same answers and keep their state."""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.conftest import PATIENCE_S
from tests.launcher.replicas.remembering import (
    ROW,
    ROWS,
    get,
    graded,
    look,
    pid_of,
    post,
    remembering,
    seeded,
    status_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["replicas", pytest.param("workers", marks=pytest.mark.slow)])
def several(request, shared_workplace):
    """A run with two processes for every server, or only for the one that keeps state."""
    words = remembering(shared_workplace, "workers: 2" if request.param == "workers" else "")
    command = shared_workplace.start_servers(words, *(["+replicas=2"] if request.param == "replicas" else []))
    yield command, request.param
    assert command.end().code == 0


def test_two_processes_answer_at_one_address(several, shared_workplace):
    command, kind = several
    server, agent = command.servers["remembering"], command.servers["agent"]
    assert len(set(server["pids"])) == server["num_workers"] == len(server["sockets"]) == 2
    assert len(agent["pids"]) == (2 if kind == "replicas" else 1)
    assert not set(agent["pids"]) & set(server["pids"])
    with ThreadPoolExecutor(8) as pool:
        seen: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 2 and time.monotonic() < deadline:
            seen |= set(pool.map(pid_of, [server["url"]] * 8))
    assert seen == set(server["pids"])
    assert f"  pid {' '.join(map(str, server['pids']))}  up " in status_of(shared_workplace, command)


def test_state_is_found_through_any_connection(several):
    url = several[0].servers["remembering"]["url"]
    cookies = [seeded(url) for _ in range(6)]
    with ThreadPoolExecutor(12) as pool:
        counted = list(pool.map(lambda at: (at % 6, look(url, cookies[at % 6]).json()), range(72)))
    for number in range(6):
        assert sorted(count for at, count in counted if at == number) == list(range(1, 13))
        assert graded(url, cookies[number], looks=12) == 1.0


def test_session_stays_with_its_process(several):
    url = several[0].servers["remembering"]["url"]
    for _ in range(3):
        cookies = seeded(url)
        assert len({pid_of(url, cookies) for _ in range(6)}) == 1


@pytest.fixture(scope="module")
def separate_rewards(shared_workplace):
    return rewards_of(shared_workplace, "separate", remembering(shared_workplace))


def rewards_of(workplace: Any, name: str, *words: str) -> dict[tuple[int, int], float]:
    """Return the rewards and outputs by task and attempt."""
    finished = workplace.run(
        "ng_e2e_collect_rollouts", *words, "+split=example", "+num_repeats=4", f"+output_jsonl_fpath={name}.jsonl",
        "+overwrite=true",
        "+head_server.port=0", "++policy_model.responses_api_models.sample_model.tool_call_probability=0.9",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    rows = [orjson.loads(line) for line in (workplace.folder / f"{name}.jsonl").read_bytes().splitlines()]
    return {
        (row["_ng_task_index"], row["_ng_rollout_index"]): (row["reward"], orjson.dumps(row["response"]["output"]))
        for row in rows
    }


@pytest.mark.parametrize("words", [("+replicas=2",), pytest.param(("workers",), marks=pytest.mark.slow)])
def test_rewards_do_not_depend_on_processes(shared_workplace, separate_rewards, words):
    config_word = remembering(shared_workplace, "workers: 2" if words == ("workers",) else "")
    rewards = rewards_of(shared_workplace, "elsewhere", config_word, *(each for each in words if each != "workers"))
    assert rewards == separate_rewards
    assert {reward for reward, _ in rewards.values()} == {1.0}
    assert len(rewards) == 4 * ROWS


@pytest.mark.parametrize("kind", ["replicas", pytest.param("workers", marks=pytest.mark.slow)])
def test_only_sessions_of_the_dead_process_are_lost(workplace, kind):
    words = remembering(workplace, "workers: 2" if kind == "workers" else "")
    command = workplace.start_servers(words, *(["+replicas=2"] if kind == "replicas" else []))
    before = command.servers["remembering"]
    url = before["url"]
    sessions: dict[int, dict[str, str]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(sessions) < 2 and time.monotonic() < deadline:
        cookies = seeded(url)
        sessions[pid_of(url, cookies)] = cookies
    assert all(look(url, cookies).json() == 1 for cookies in sessions.values())
    first, second = before["pids"]
    os.kill(second, signal.SIGKILL)

    lost = look(url, sessions[second])
    assert (lost.status_code, lost.json()["failure_class"]) == (503, "lost")
    assert look(url, sessions[first]).json() == 2
    assert graded(url, sessions[first], looks=2) == 1.0
    name = "remembering#2"
    command.wait_for(f"server '{name}' is up again")
    assert f"server '{name}' was ended by SIGKILL; its rollouts under way are lost." in command.err

    after = command.servers["remembering"]
    assert (after["pids"][0], after["restarts"], after["url"]) == (first, 1, url)
    assert second not in after["pids"]
    assert look(url, sessions[second]).json()["failure_class"] == "lost"
    again: set[int] = set()
    while len(again) < 2 and time.monotonic() < deadline + 10:
        cookies = seeded(url)
        assert look(url, cookies).json() == 1
        again.add(pid_of(url, cookies))
    assert again == set(after["pids"])
    assert command.end().code == 0
    assert workplace.left_over() == []


def test_run_token_is_forwarded_between_processes(workplace):
    command = workplace.start_servers(remembering(workplace, "workers: 2"), "+run_token=token-of-this-run")
    url = next(server for server in instances(command, "token-of-this-run") if server["name"] == "remembering")["url"]
    headers = {"authorization": "Bearer token-of-this-run"}
    with httpx.Client(verify=False, headers=headers) as client:
        cookies = dict(client.post(f"{url}/seed_session", json=ROW).cookies)
    counts = [post(f"{url}/look", json={}, cookies=cookies, headers=headers).json() for _ in range(12)]
    assert counts == list(range(1, 13))


def instances(command: Any, token: str) -> list[dict[str, Any]]:
    answer = get(f"{command.head}/server_instances", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ended_run_leaves_nothing(workplace, number):
    # The path of a unix socket is limited in length, and TMPDIR may exceed that.
    temporary = workplace.folder / "a-folder-for-temporary-files" / ("of-a-long-name" * 6)
    temporary.mkdir(parents=True)
    command = workplace.start_servers(remembering(workplace), "+replicas=2", TMPDIR=str(temporary))
    sockets = [Path(path) for server in command.servers.values() for path in server["sockets"]]
    assert len(set(sockets)) == 2 * 3
    (folder,) = {path.parent for path in sockets}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert command.end(number).code == 0
    assert workplace.left_over() == []
    assert not folder.exists()
    assert list(temporary.iterdir()) == []


@pytest.fixture(scope="module")
def held_port(shared_workplace):
    """A port that two processes serve, and the argument that starts another run with it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config_word = shared_workplace.environment("held", settings=f"port: {port}")
    command = shared_workplace.start_servers(config_word, "+replicas=2")
    yield port, config_word
    assert command.end().code == 0


@pytest.mark.parametrize("words", [(), pytest.param(("+replicas=2",), marks=pytest.mark.slow)])
def test_port_of_several_processes_stays_exclusive(shared_workplace, held_port, words):
    port, config_word = held_port
    finished = shared_workplace.run("ng_run", config_word, "+head_server.port=0", *words)
    assert finished.code == 1
    place = "resources_servers/held/configs/held.yaml:5: held.resources_servers.held.port"
    assert finished.err.startswith(f"Error: {place}: port {port} on 127.0.0.1 is held by process ")
