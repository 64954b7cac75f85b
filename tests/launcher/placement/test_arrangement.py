"""Which server is in which process, and servers that are together beside others that are not."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nemo_gym import config
from nemo_gym.launcher.arrangement import Arranged, arrange
from tests.launcher.placement.remembering import HELPED_SERVER, ROW, graded, post, remembering, seeded


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
