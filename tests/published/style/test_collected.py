"""Collect through the steps of `RolloutCollectionHelper`, as programs of published folders do.

| folder        | idioms |
|---------------|--------|
| `kept_drafts` | `_preprocess_rows_from_config` and `_call_aggregate_metrics` overridden with `super()` and called alone, rows posted by its own loop, a mocked client with only `post`, a patched configuration |
"""  # noqa: E501

from __future__ import annotations

import shutil

import orjson
import pytest

from tests.published.style.conftest import UNCOPIED
from tests.published.style.folders import COLLECTED
from tests.published.style.scripted_environments import SCRIPTED_MODEL

pytestmark = pytest.mark.slow

MODEL = "policy_model: {responses_api_models: {scripted_model: {entrypoint: app.py, answer: plum}}}\n"
FOLDER = "resources_servers/kept_drafts"


@pytest.fixture(scope="module")
def place(shared_workplace):
    shutil.copytree(COLLECTED, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    shared_workplace.write("responses_api_models/scripted_model/app.py", SCRIPTED_MODEL)
    shared_workplace.write("model.yaml", MODEL)
    return shared_workplace


def test_folder_passes_its_own_tests(place):
    finished = place.run("ng_test", f"+entrypoint={FOLDER}")
    assert finished.code == 0, finished.out + finished.err


def test_program_collects_through_overridden_steps(place):
    servers = place.start_servers(f"+config_paths=[model.yaml,{FOLDER}/configs/kept_drafts.yaml]")
    host, port = servers.head.removeprefix("http://").split(":")
    place.write("results/draft_1_0", "It exists.")
    finished = place.run(
        "python",
        f"{FOLDER}/collect_drafts.py",
        f"{FOLDER}/data/example.jsonl",
        "results/drafts.jsonl",
        f"+head_server.host={host}",
        f"+head_server.port={port}",
    )
    servers.end()
    assert finished.code == 0, finished.out + finished.err
    assert finished.out.split() == ["3", "results/again_aggregate_metrics.json"]
    results = [orjson.loads(line) for line in (place.folder / "results/drafts.jsonl").read_bytes().splitlines()]
    rewards = {row["draft_name"]: row["reward"] for row in results}
    assert rewards == {"draft_0_0": 1.0, "draft_0_1": 1.0, "draft_1_1": 0.0}
    record = orjson.loads((place.folder / "results/drafts_run.json").read_bytes())
    assert list(record["models"]) == ["policy_model"]
    summary = orjson.loads((place.folder / "results/drafts.json").read_bytes())
    assert summary["drafts"] == ["draft_0_0", "draft_0_1", "draft_1_1"]
    assert summary["metrics"]["mean/reward"] == pytest.approx(2 / 3)
