"""Tests of `ng list …` and `ng search`."""

from __future__ import annotations

import orjson
import pytest

pytestmark = pytest.mark.slow

RESOURCES_SERVER = """
mine:
  resources_servers:
    mine:
      entrypoint: app.py
      domain: games
      description: A game of mine
"""
AGENT = """
mine_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: mine}
      datasets:
        - {name: shown, type: example, jsonl_fpath: x.jsonl}
"""


@pytest.fixture(scope="module")
def mine(shared_workplace):
    shared_workplace.write("resources_servers/mine/app.py", "")
    shared_workplace.write("resources_servers/mine/configs/mine.yaml", RESOURCES_SERVER + AGENT)
    shared_workplace.write("resources_servers/mine/configs/bare.yaml", RESOURCES_SERVER)
    shared_workplace.write("resources_servers/mine/configs/broken.yaml", "mine: [")
    shared_workplace.write("environments/garden/config.yaml", RESOURCES_SERVER + AGENT)
    shared_workplace.write("environments/garden/night.yaml", RESOURCES_SERVER.replace("games", "safety") + AGENT)
    return shared_workplace


def listed(workplace, *words):
    finished = workplace.run("ng", "list", *words, "--json")
    assert finished.code == 0
    return {each["name"]: each for each in orjson.loads(finished.out)}


def test_resources_servers_are_listed_with_their_details(mine):
    found = listed(mine, "resources-servers")
    assert {"mine", "mcqa"} <= set(found)
    assert found["mine"] == {
        "name": "mine",
        "kind": "resources-server",
        "path": str(mine.folder / "resources_servers/mine"),
        "domain": "games",
        "description": "A game of mine",
        "configs": ["bare", "broken", "mine"],
        "agents": [],
        "datasets": [],
        "num_repeats": None,
        "rows": None,
        "license": None,
        "is_prepared": None,
    }


@pytest.mark.parametrize(
    ("what", "name"), [("agents", "simple_agent"), ("models", "vllm_model"), ("resources-servers", "mcqa")]
)
def test_shipped_servers_are_listed(mine, what, name):
    assert name in listed(mine, what)
    assert f"\n{name} " in mine.run("nemo_gym", "list", what).out


def test_config_with_agent_is_an_environment(mine):
    found = listed(mine, "environments")
    ours = {name: (each["kind"], each["domain"]) for name, each in found.items() if name[:4] in ("mine", "gard")}
    assert ours == {
        "mine": ("environment", "games"),
        "garden": ("environment", "games"),
        "garden/night": ("environment", "safety"),
    }
    assert found["mine"]["datasets"] == ["shown (example)"]


@pytest.mark.slow
def test_every_listed_environment_is_selectable(mine):
    for name in listed(mine, "environments"):
        finished = mine.run("ng", "env", "resolve", "--environment", name)
        assert finished.code == 0, (name, finished.err)


def test_environments_are_filtered_by_domain_and_kind(mine):
    assert set(listed(mine, "environments", "--domain", "safety")) == {"garden/night"}
    found = listed(mine, "environments", "--kind", "benchmark")
    assert "gsm8k" in found
    assert {each["kind"] for each in found.values()} == {"benchmark"}


def test_unreadable_config_is_noted_and_skipped(mine):
    finished = mine.run("ng", "list", "resources-servers")
    assert finished.code == 0
    assert finished.err.startswith("note: resources_servers/mine/configs/broken.yaml:2:1: not valid YAML")
    assert finished.err.count("\n") == 1


def test_config_with_invalid_datasets_is_listed(workplace):
    text = (RESOURCES_SERVER + AGENT).partition("      datasets:")[0]
    workplace.write("environments/garden/config.yaml", f"{text}      datasets: 5\n")
    assert listed(workplace, "environments")["garden"]["datasets"] == []


def test_single_component_is_shown_in_detail(mine):
    lines = mine.run("ng", "list", "environments", "garden/night").out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "name", "kind", "path", "domain", "description", "agents", "datasets",
    ]  # fmt: skip
    assert mine.run("ng", "list", "environments", "+component_name=garden/night").out.splitlines() == lines


def test_unknown_name_is_reported_with_suggestion(mine):
    assert mine.run("ng", "list", "agents", "simpleagent") == (
        1,
        "",
        "Error: 'simpleagent' not found among the agents. Did you mean 'simple_agent'?\n",
    )


def test_more_than_one_name_is_rejected(mine):
    finished = mine.run("ng", "list", "agents", "one", "two")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("Error: expected at most one name, got 2: one two.")


def test_environment_config_is_selected_by_name(mine):
    finished = mine.run("ng_validate", "--environment", "garden/night", "--model-type", "sample_model")
    assert finished.code == 1
    assert "resources_servers/mine/app.py" in finished.err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("garden",), {"garden", "garden/night"}),
        (("gardn",), {"garden", "garden/night"}),
        (("SAFETY",), {"garden/night"}),
        (("environments", "game of m"), {"mine", "garden", "garden/night"}),
        (("resources-servers", "+query=mine"), {"mine"}),
        (("models", "simple_agent"), set()),
    ],
)
def test_search_covers_names_domains_and_descriptions(mine, words, names):
    finished = mine.run("ng", "search", *words, "--json")
    assert finished.code == 0
    assert {each["name"] for each in orjson.loads(finished.out)} >= names
    assert names or finished.out == "[]\n"


def test_search_prints_table_or_empty_result(mine):
    assert mine.run("ng", "search", "agents", "simple").out.splitlines()[1].startswith("simple_agent")
    assert mine.run("ng", "search", "agents", "qqq").out == "no agents like 'qqq'\n"
    finished = mine.run("ng", "search")
    assert (finished.code, finished.err) == (
        2, "Error: query is missing: add --query …. --help lists all settings.\n",
    )  # fmt: skip


def test_misspelled_kind_of_search_is_reported(mine):
    finished = mine.run("ng", "search", "agnets", "sql")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(
        "Error: 'agnets' is not a kind of component. Did you mean 'agents'? --help lists all kinds."
    )


def test_search_for_two_words_needs_quotes(mine):
    finished = mine.run("ng", "search", "agents", "big", "garden")
    assert finished.code == 2
    assert finished.err.startswith(
        "Error: expected at most one name, got 2: big garden. Put words that belong together in quotes."
    )


def test_unknown_domain_is_reported(mine):
    finished = mine.run("ng", "list", "environments", "--domain", "gams")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("Error: domain: it must be 'math', ")
    assert "but is 'gams'. Did you mean 'games'?" in finished.err
