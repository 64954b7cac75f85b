"""Servers share a process, or several processes serve one: what they answer is the same, and state is never lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from nemo_gym import config
from nemo_gym.launcher.arrangement import Arranged, arrange

# Each call has a connection of its own; to read certificates, which none needs, would take longer than the calls.
get, post = partial(httpx.get, verify=False, timeout=20), partial(httpx.post, verify=False, timeout=20)

REMEMBERING_SERVER = """
import os
from pathlib import Path

from nemo_gym import (
    BaseResourcesServerConfig, BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
)
from nemo_gym.global_config import get_global_config_dict

AT_IMPORT = Path("word.txt").read_text()


class Config(BaseResourcesServerConfig):
    word: str = "no word"


class Seen(SessionState):
    was_seeded: bool = False
    count: int = 0


class Remembering(SimpleResourcesServer):
    config: Config

    def model_post_init(self, context):
        self._read = [AT_IMPORT, Path("word.txt").read_text()]

    async def startup(self):
        self._read.append(Path("word.txt").read_text())
        Path("lives.txt").open("a").write("begun ")

    async def aclose(self):
        (Path(__file__).parent / "lives.txt").open("a").write("ended ")

    async def seed_session(self, body: BaseSeedSessionRequest, seen: Seen) -> None:
        seen.was_seeded = True

    @tool
    async def look(self, seen: Seen) -> int:
        \"\"\"Look once.\"\"\"
        seen.count += 1
        return seen.count

    async def verify(self, body: BaseVerifyRequest, seen: Seen) -> float:
        return float(seen.was_seeded and seen.count == len(body.response.tool_calls))

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/about")
        def about() -> dict:
            known = get_global_config_dict()
            return {
                "pid": os.getpid(), "read": self._read, "word": self.config.word,
                "names": sorted(str(name) for name in known if name in NAMES),
                "client_knows_all": known == self.server_client.global_config_dict,
                "own": str(known[self.config.name]["resources_servers"][self.config.name].get("word")),
            }

        return app


NAMES = ("remembering", "other", "agent", "policy_model", "head_server")
"""
CONFIG = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: remembering}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: rows, type: example, jsonl_fpath: resources_servers/remembering/data/example.jsonl}
"""
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
ROWS = 5
ROW = {"responses_create_params": {"input": "Look around."}}
HELPED_SERVER = """
from helper import WORD
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Helped(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(WORD == self.config.name)
"""
FAILING_SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Failing(SimpleResourcesServer):
    async def startup(self):
        raise OSError("the moon is not in its place")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def remembering(workplace: Any, settings: str = "", name: str = "remembering") -> str:
    """Write the server that keeps state, its agent and its rows; the word that starts both with a model."""
    workplace.environment(name, REMEMBERING_SERVER, settings)
    workplace.write(f"resources_servers/{name}/word.txt", f"word of {name}")
    workplace.write("agent.yaml", CONFIG)
    rows = [{"responses_create_params": {"input": f"Look around, {number}."}} for number in range(ROWS)]
    lines = "".join(f"{orjson.dumps(row).decode()}\n" for row in rows)
    workplace.write(f"resources_servers/{name}/data/example.jsonl", lines)
    return f"+config_paths=[resources_servers/{name}/configs/{name}.yaml,agent.yaml,{SAMPLE_MODEL}]"


def seeded(url: str) -> dict[str, str]:
    """The cookies of a session that begins."""
    answer = post(f"{url}/seed_session", json=ROW)
    assert answer.status_code == 200
    return dict(answer.cookies)


def look(url: str, cookies: dict[str, str]) -> httpx.Response:
    """A call in a session, through a connection of its own."""
    return post(f"{url}/look", json={}, cookies=cookies)


def graded(url: str, cookies: dict[str, str], looks: int) -> float:
    calls = [{"type": "function_call", "name": "look", "arguments": "{}", "call_id": str(at)} for at in range(looks)]
    response = {
        "id": "r", "created_at": 0, "model": "m", "object": "response", "output": calls, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    answer = post(f"{url}/verify", json={**ROW, "response": response}, cookies=cookies)
    assert answer.status_code == 200, answer.text
    return answer.json()["reward"]


def pid_of(url: str, cookies: dict[str, str] | None = None) -> int:
    """The process that answers: the one that has the session, where there is one."""
    return get(f"{url}/about", cookies=cookies).json()["pid"]


def status_of(workplace: Any, command: Any) -> str:
    return workplace.run("ng_status", f"+head_server.port={command.head.rpartition(':')[2]}").out


# One process


@pytest.fixture(scope="module", params=["fork", "spawn"])
def together(request, shared_workplace):
    """Two servers that keep state, an agent and a model in one process."""
    lives = shared_workplace.folder / "resources_servers/other/lives.txt"
    lives.unlink(missing_ok=True)
    words = remembering(shared_workplace, "word: plum")
    other = shared_workplace.environment("other", REMEMBERING_SERVER)
    shared_workplace.write("resources_servers/other/word.txt", "word of other")
    command = shared_workplace.start_servers(
        words, other, "+placement=together", f"+process_start_method={request.param}", "+nemo_gym_log_dir=logs"
    )
    yield command
    assert command.end().code == 0
    assert lives.read_text() == "begun ended "


def test_all_servers_of_a_process_answer_at_their_own_addresses(together, get_json):
    servers = together.servers
    assert servers.keys() == {"remembering", "other", "agent", "policy_model"}
    assert len({server["port"] for server in servers.values()}) == 4
    assert {(server["process"], server["pid"], len(server["pids"])) for server in servers.values()} == {
        ("together", servers["agent"]["pid"], 1)
    }
    assert [get_json(server["url"]) for server in servers.values()] == [{"status": "ok"}] * 4
    assert {server["status"] for server in servers.values()} == {"success"}
    assert post(f"{servers['agent']['url']}/look", json={}).status_code == 404
    assert [get_json(f"{servers[name]['url']}/about")["word"] for name in ("remembering", "other")] == [
        "plum", "no word",
    ]  # fmt: skip


def test_the_status_names_the_process(together, shared_workplace):
    lines = status_of(shared_workplace, together).splitlines()
    pid = together.servers["agent"]["pid"]
    assert [bool(re.search(rf"  pid {pid} \(together\)  up \d+ s", line)) for line in lines] == [True] * 4 + [False]


def test_each_server_of_a_process_finds_its_files_as_it_starts(together, get_json):
    for name in ("remembering", "other"):
        told = get_json(f"{together.servers[name]['url']}/about")
        assert told["read"] == [f"word of {name}"] * 3


def test_a_process_knows_the_configuration_that_its_servers_may_know(together, get_json):
    told = {name: get_json(f"{together.servers[name]['url']}/about") for name in ("remembering", "other")}
    assert {tuple(each["names"]) for each in told.values()} == {
        ("agent", "head_server", "other", "policy_model", "remembering")
    }
    assert [told[name]["own"] for name in ("remembering", "other")] == ["plum", "None"]
    assert [told[name]["client_knows_all"] for name in ("remembering", "other")] == [True, True]


def test_sessions_of_two_servers_in_a_process_are_apart(together):
    urls = [together.servers[name]["url"] for name in ("remembering", "other")]
    cookies = [seeded(url) for url in urls]
    assert [look(urls[0], cookies[0]).json() for _ in range(3)] == [1, 2, 3]
    assert look(urls[1], cookies[0] | cookies[1]).json() == 1
    assert graded(urls[0], cookies[0], looks=3) == 1.0


def test_lines_of_the_log_bear_the_name_of_the_process(together, shared_workplace):
    assert (shared_workplace.folder / "logs/together.log").exists()
    assert not (shared_workplace.folder / "logs/agent.log").exists()


# Several processes


@pytest.fixture(scope="module", params=["replicas", "workers"])
def several(request, shared_workplace):
    """Two processes for the server that keeps state: with all of the others, or alone."""
    words = remembering(shared_workplace, "workers: 2" if request.param == "workers" else "")
    command = shared_workplace.start_servers(words, *(["+replicas=2"] if request.param == "replicas" else []))
    yield command, request.param
    assert command.end().code == 0


def test_two_processes_answer_at_one_address(several, shared_workplace):
    command, kind = several
    server, agent = command.servers["remembering"], command.servers["agent"]
    assert len(set(server["pids"])) == server["num_workers"] == len(server["sockets"]) == 2
    assert (agent["pids"] == server["pids"]) == (kind == "replicas")
    with ThreadPoolExecutor(8) as pool:
        seen: set[int] = set()
        deadline = time.monotonic() + 10
        while len(seen) < 2 and time.monotonic() < deadline:
            seen |= set(pool.map(pid_of, [server["url"]] * 8))
    assert seen == set(server["pids"])
    told = f"pid {' '.join(map(str, server['pids']))}{' (together)' if kind == 'replicas' else ''}"
    assert f"  {told}  up " in status_of(shared_workplace, command)


def test_state_is_found_through_any_connection(several):
    url = several[0].servers["remembering"]["url"]
    cookies = [seeded(url) for _ in range(6)]
    with ThreadPoolExecutor(12) as pool:
        counted = list(pool.map(lambda at: (at % 6, look(url, cookies[at % 6]).json()), range(72)))
    for number in range(6):
        assert sorted(count for at, count in counted if at == number) == list(range(1, 13))
        assert graded(url, cookies[number], looks=12) == 1.0


def test_a_session_stays_where_it_was_begun(several):
    url = several[0].servers["remembering"]["url"]
    for _ in range(3):
        cookies = seeded(url)
        assert len({pid_of(url, cookies) for _ in range(6)}) == 1


@pytest.fixture(scope="module")
def separate_rewards(shared_workplace):
    return rewards_of(shared_workplace, "separate", remembering(shared_workplace))


def rewards_of(workplace: Any, name: str, *words: str) -> dict[tuple[int, int], float]:
    """By task and attempt."""
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


@pytest.mark.parametrize("words", [("+placement=together",), ("+placement=together", "+replicas=2"), ("workers",)])
def test_rollouts_are_the_same_wherever_the_servers_are(shared_workplace, separate_rewards, words):
    config_word = remembering(shared_workplace, "workers: 2" if words == ("workers",) else "")
    rewards = rewards_of(shared_workplace, "elsewhere", config_word, *(each for each in words if each != "workers"))
    assert rewards == separate_rewards
    assert {reward for reward, _ in rewards.values()} == {1.0}
    assert len(rewards) == 4 * ROWS


@pytest.mark.parametrize("kind", ["replicas", "workers"])
def test_the_sessions_of_a_process_that_died_are_lost_and_the_others_go_on(workplace, kind):
    words = remembering(workplace, "workers: 2" if kind == "workers" else "")
    command = workplace.start_servers(words, *(["+replicas=2"] if kind == "replicas" else []))
    before = command.servers["remembering"]
    url = before["url"]
    sessions: dict[int, dict[str, str]] = {}
    deadline = time.monotonic() + 10
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
    name = f"{'together' if kind == 'replicas' else 'remembering'}#2"
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
    assert workplace.left_over(within_s=1) == []


def test_calls_within_a_run_with_a_token_reach_the_process_that_has_the_session(workplace):
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_nothing_is_left_behind(workplace, number):
    # The path of a unix socket has an end; that of a folder for temporary files may lie beyond.
    temporary = workplace.folder / "a-folder-for-temporary-files" / ("of-a-long-name" * 6)
    temporary.mkdir(parents=True)
    command = workplace.start_servers(remembering(workplace), "+replicas=2", TMPDIR=str(temporary))
    sockets = [Path(path) for server in command.servers.values() for path in server["sockets"]]
    assert len(set(sockets)) == 2 * 3
    (folder,) = {path.parent for path in sockets}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert command.end(number).code == 0
    assert workplace.left_over(within_s=1) == []
    assert not folder.exists()
    assert list(temporary.iterdir()) == []


@pytest.fixture(scope="module")
def held_port(shared_workplace):
    """A port that two processes serve, and the word that starts a run with the same."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config_word = shared_workplace.environment("held", settings=f"port: {port}")
    command = shared_workplace.start_servers(config_word, "+replicas=2")
    yield port, config_word
    assert command.end().code == 0


@pytest.mark.parametrize("words", [(), ("+replicas=2",)])
def test_the_port_of_several_processes_is_refused_to_another_run(shared_workplace, held_port, words):
    port, config_word = held_port
    finished = shared_workplace.run("ng_run", config_word, "+head_server.port=0", *words)
    assert finished.code == 1
    place = "resources_servers/held/configs/held.yaml:5: held.resources_servers.held.port"
    assert finished.err.startswith(f"Error: {place}: port {port} on 127.0.0.1 is held by process ")


# Who is where


def arranged(workplace: Any, *words: str, apart: tuple[str, ...] = (), one_by_one: bool = False) -> list[Arranged]:
    names = ("first", "second", "third")
    paths = [workplace.folder / f"resources_servers/{name}/configs/{name}.yaml" for name in names]
    return arrange(config.load(paths, words, skip_dotenv=True), apart=apart, one_by_one=one_by_one)


@pytest.fixture
def three(workplace, monkeypatch):
    monkeypatch.chdir(workplace.folder)
    for name, settings in (("first", ""), ("second", "placement: separate"), ("third", "workers: 2")):
        workplace.environment(name, settings=settings)
    return workplace


def one(name: str, *servers: str, number: int = 0, of: int = 1) -> Arranged:
    return Arranged(name, servers or (name.partition("#")[0],), number, of)


THIRD = [one("third", number=0, of=2), one("third#2", number=1, of=2)]


def test_by_default_each_server_has_its_own_processes(three):
    assert arranged(three) == [one("first"), one("second"), *THIRD]
    assert arranged(three, "+placement=separate") == arranged(three)


def test_a_server_may_stay_apart_from_those_that_are_together(three):
    names = [process.servers for process in arranged(three, "+placement=together")]
    assert ("second",) in names
    assert any("first" in each and "second" not in each for each in names)


def test_there_are_as_many_processes_of_a_kind_as_there_are_replicas(three):
    processes = arranged(three, "+replicas=3")
    shared = [process for process in processes if "first" in process.servers]
    assert [(each.name, each.number, each.of) for each in shared] == [
        ("together", 0, 3), ("together#2", 1, 3), ("together#3", 2, 3),
    ]  # fmt: skip
    assert one("second") in processes


def test_auto_is_a_process_for_each_core(three):
    processes = arranged(three, "+placement=together", "+replicas=auto")
    shared = [process for process in processes if "first" in process.servers]
    assert len(shared) == len(os.sched_getaffinity(0))


def test_a_server_with_an_interpreter_of_its_own_stays_apart(three):
    processes = arranged(three, "+placement=together", apart=("first",))
    assert one("first") in processes
    assert all("first" not in process.servers for process in processes if process.name.startswith("together"))


def test_servers_that_are_tried_out_are_tried_one_by_one(three):
    processes = arranged(three, "+replicas=3", one_by_one=True, apart=("third",))
    assert processes == [one("first", of=3), one("second"), one("third", of=2)]


@pytest.fixture(scope="module")
def mixed(shared_workplace):
    """Servers that are together, two that are not, and modules of one name in several of their folders."""
    words = [remembering(shared_workplace, "placement: separate"), shared_workplace.environment()]
    # The standard library has a module of this name, as every process knows.
    shared_workplace.write("resources_servers/plain/types.py", "")
    for name, settings in (("first", ""), ("second", "placement: separate")):
        words.append(shared_workplace.environment(name, HELPED_SERVER, settings))
        shared_workplace.write(f"resources_servers/{name}/helper.py", f"WORD = '{name}'\n")
    shared_workplace.write("twin.yaml", "twin:\n  resources_servers:\n    first:\n      entrypoint: app.py\n")
    command = shared_workplace.start_servers(*words, "+config_paths=[twin.yaml]", "+placement=together")
    yield command.servers
    assert command.end().code == 0


def test_a_server_of_its_own_process_runs_beside_the_others(mixed):
    apart = {"remembering": "remembering", "second": "second"}
    assert {name: server["process"] for name, server in mixed.items()} == apart | dict.fromkeys(
        ("agent", "policy_model", "plain", "first", "twin"), "together"
    )
    assert len({mixed[name]["pid"] for name in ("agent", "policy_model", "plain", "first", "twin")}) == 1
    assert len({mixed[name]["pid"] for name in ("agent", *apart)}) == 3
    told = post(f"{mixed['agent']['url']}/run", json={**ROW, "agent_ref": {"name": "agent"}})
    assert told.json()["reward"] == 1.0


def test_modules_of_one_name_may_be_in_two_processes_or_be_nobodys_own(mixed):
    for name in ("first", "second"):
        assert graded(mixed[name]["url"], seeded(mixed[name]["url"]), looks=0) == 1.0


def test_two_instances_of_one_folder_may_be_together(mixed):
    rewards = {name: graded(mixed[name]["url"], seeded(mixed[name]["url"]), looks=0) for name in ("first", "twin")}
    assert rewards == {"first": 1.0, "twin": 0.0}


# Mistakes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("+placement=together-ish",),
            "command line: +placement=together-ish: placement has to be separate or together, and is 'together-ish'. "
            "Did you mean 'together'?",
        ),
        (("+replicas=0",), "command line: +replicas=0: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=two",), "command line: +replicas=two: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=1.5",), "command line: +replicas=1.5: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=true",), "command line: +replicas=true: replicas is the number of processes, from 1, or 'auto'"),
        (
            ("+placement=separate", "+replicas=2"),
            "command line: +replicas=2: replicas says how many processes have all servers together, but placement is "
            "'separate'.",
        ),
    ],
)
def test_a_placement_that_comes_to_nothing_is_told_with_its_place(shared_workplace, words, told):
    finished = shared_workplace.run("ng_run", shared_workplace.environment(), "+head_server.port=0", *words)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(f"Error: {told}")
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("placement: apart", "placement"),
        ("workers: 0", "workers"),
        ("workers: many", "workers"),
    ],
)
def test_a_setting_of_a_server_that_comes_to_nothing_is_told_with_its_line(workplace, settings, told):
    finished = workplace.run("ng_run", workplace.environment("plain", settings=settings), "+head_server.port=0")
    assert finished.code == 1
    assert finished.err.startswith("Error: resources_servers/plain/configs/plain.yaml:5: ")
    assert told in finished.err.splitlines()[0]
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("command", [("ng_run", "+head_server.port=0"), ("ng_validate",)])
@pytest.mark.parametrize(("settings", "words"), [("", ("+replicas=2",)), ("\nworkers: 2", ())])
def test_tools_over_mcp_are_refused_to_several_processes(workplace, command, settings, words):
    pytest.importorskip("mcp")
    config_word = remembering(workplace, f"expose_tools_over_mcp: true{settings}")
    finished = workplace.run(*command, config_word, *words)
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: resources_servers/remembering/configs/remembering.yaml:5: remembering: 2 processes serve it, and "
        "calls over MCP do not find the one that has their session."
    )
    assert finished.err.count("\n") == 1
    assert workplace.left_over(within_s=1) == []


@pytest.mark.parametrize("path", ["helper.py", "helper/__init__.py"])
def test_two_modules_of_one_name_cannot_be_together(workplace, path):
    words = [workplace.environment(name, HELPED_SERVER) for name in ("first", "second")]
    for name in ("first", "second"):
        workplace.write(f"resources_servers/{name}/{path}", f"WORD = '{name}'\n")
    finished = workplace.run("ng_run", *words, "+head_server.port=0", "+placement=together")
    assert finished.code == 1
    files = [workplace.folder / f"resources_servers/{name}/{path}" for name in ("second", "first")]
    assert finished.err == (
        f"Error: second: {files[0]} and {files[1]} are modules of one name, and servers that are together share their "
        "modules. Let one of them run separately: placement: separate in the block of second.\n"
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_server_that_fails_as_it_starts_tells_why(workplace, method):
    words = [workplace.environment(), workplace.environment("failing", FAILING_SERVER)]
    finished = workplace.run(
        "ng_run", *words, "+head_server.port=0", "+placement=together", f"+process_start_method={method}"
    )
    assert finished.code == 1
    assert finished.err.startswith("Error: server 'together' ended with exit code 3 before it was ready")
    assert "OSError: the moon is not in its place" in finished.err
    assert str(Path("resources_servers/failing/app.py")) in finished.err
    assert workplace.left_over(within_s=1) == []
