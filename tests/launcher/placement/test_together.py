"""Servers that share a process: what they answer is the same, and state is never mixed."""

from __future__ import annotations

import re

import pytest

from tests.launcher.placement.remembering import REMEMBERING_SERVER, graded, look, post, remembering, seeded, status_of


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
