"""Serve folders in the style of release 0.7 and collect their episodes, some of which fail.

| folder       | idioms |
|--------------|--------|
| `kept_words` | strict `ResourcesSeedSessionRequest`, `TaskData` that forbids other fields, `failure_kind`, an `environment_servers` block `single_agent_turn` with its bounds |
| `kept_agent` | `_seed_agent_session_state`, `_close_agent_session_state`, `AgentSessionSetupError`, a subclass of `AgentSessionState`, `_require_agent_session`, `effective_tool_accesses` |
"""  # noqa: E501

from __future__ import annotations

import shutil
from typing import Any

import orjson
import pytest

from tests.published.style.conftest import UNCOPIED
from tests.published.style.folders import EPISODES

pytestmark = pytest.mark.slow

CONFIG = "+config_paths=[resources_servers/kept_words/configs/kept_words.yaml]"
FOLDERS = ["resources_servers/kept_words", "responses_api_agents/kept_agent"]
MARKS = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full"}


@pytest.fixture(scope="module")
def place(shared_workplace):
    shutil.copytree(EPISODES, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    return shared_workplace


def test_servers_start_in_a_checkout_of_the_published_package(place):
    package = place.folder / "nemo_gym" / "__init__.py"
    package.parent.mkdir()
    package.write_text("raise RuntimeError('the published package was imported')")
    try:
        place.start_servers(CONFIG).end()
    finally:
        shutil.rmtree(package.parent)


def rows_in(place: Any, path: str) -> list[dict[str, Any]]:
    file = place.folder / path
    return [orjson.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


@pytest.fixture(scope="module")
def collected(place):
    """Return the scored example rows by their word."""
    finished = place.run(
        "ng_e2e_collect_rollouts",
        CONFIG,
        "+split=example",
        "+num_repeats=2",
        # Each call of a session must reach the process that has its state.
        "+kept_agent.responses_api_agents.kept_agent.num_workers=2",
        "+kept_words.resources_servers.kept_words.num_workers=2",
        "+output_jsonl_fpath=results/words.jsonl",
        "+head_server.port=0",
    )
    assert finished.code == 0, finished.out + finished.err
    assert rows_in(place, "results/words_failures.jsonl") == []
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows_in(place, "results/words.jsonl"):
        found.setdefault(row["word"], []).append(row)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_passes_its_own_tests(place, folder):
    finished = place.run("ng_test", f"+entrypoint={folder}")
    assert finished.code == 0, finished.out + finished.err


def test_task_data_class_checks_and_describes_the_rows(place):
    words = ["--config", "resources_servers/kept_words/configs/kept_words.yaml", "--mode", "example_validation"]
    collated = place.run("ng", "dataset", "collate", *words, "--output-dir", "out", "--task-data-validation")
    assert (collated.code, "5 rows" in collated.out) == (0, True), collated.err
    described = place.run("ng", "env", "schema", "kept_words", "--json")
    schema = orjson.loads(described.out)
    assert schema["required"] == ["responses_create_params", "word"]
    assert schema["properties"]["word"]["description"] == "The word to say."


def test_episodes_earn_their_rewards(collected):
    rewards = {word: [row["reward"] for row in rows] for word, rows in collected.items()}
    assert rewards == {"plum": [1.0] * 2, "pear": [0.0] * 2, "fig": [1.0] * 2, "lime": [1.0] * 2, "kiwi": [1.0] * 2}
    rows = sorted(collected["plum"], key=lambda row: row["_ng_rollout_index"])
    assert [(row["capture_key"], row["taskset"]) for row in rows] == [
        ("0-0", "kept_words_episodes"),
        ("0-1", "kept_words_episodes"),
    ]


def test_failure_kind_is_recorded_only_when_set(collected):
    for word, rows in collected.items():
        for row in rows:
            assert {key: row[key] for key in MARKS if key in row} == (MARKS if word == "fig" else {})


@pytest.fixture(scope="module")
def servers(place):
    command = place.start_servers(CONFIG)
    yield command
    command.end()


def failures_of(place: Any, servers: Any, name: str, agent: str, *plans: str) -> list[dict[str, Any]]:
    """Collect one row per plan, each with one attempt; return the failures, after checking that none has a reward."""
    rows = [
        {
            "responses_create_params": {"input": f"Say w{number}, {plan}."},
            "word": f"w{number}",
            "plan": plan,
            "agent_ref": {"name": agent},
        }
        for number, plan in enumerate(plans)
    ]
    place.write(f"data/{name}.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    host, port = servers.head.removeprefix("http://").split(":")
    place.run(
        "ng_collect_rollouts",
        f"+head_server.host={host}",
        f"+head_server.port={port}",
        f"+input_jsonl_fpath=data/{name}.jsonl",
        f"+output_jsonl_fpath=results/{name}.jsonl",
        "+max_attempts=1",
    )
    failed = rows_in(place, f"results/{name}_failures.jsonl")
    assert len(failed) + len(rows_in(place, f"results/{name}.jsonl")) == len(rows)
    assert not any("reward" in row for row in failed)
    return failed


def test_verifier_that_hangs_times_out(place, servers):
    (failed,) = failures_of(place, servers, "slow", "short_episodes", "slow_verify")
    assert failed["_ng_failure_class"] == "timeout"
    assert "did not reply within default_episode_timeout_seconds (5 s)" in failed["_ng_failure_message"]


def test_episode_beyond_the_limit_is_overloaded(place, servers):
    failed = failures_of(place, servers, "full", "short_episodes", "hangs", "hangs")
    reasons = {row["_ng_failure_class"]: row["_ng_failure_message"] for row in failed}
    assert set(reasons) == {"timeout", "overloaded"}
    assert "queue_timeout_seconds (0.5 s) passed while all max_concurrent_episodes (1)" in reasons["overloaded"]


def test_agent_that_dies_before_verification_fails_its_tier(place, servers):
    (failed,) = failures_of(place, servers, "dead", "kept_words_episodes", "dies")
    assert (failed["_ng_failure_class"], failed["_ng_failure_tier"]) == ("lost", "agent")
    assert failed["_ng_failure_server"] == "kept_agent"


def test_invalid_task_data_fails_the_seed(place, servers):
    (failed,) = failures_of(place, servers, "odd", "kept_words_episodes", "no such plan")
    assert failed["_ng_failure_tier"] == "environment"
    assert "no such plan" in failed["_ng_failure_message"]
