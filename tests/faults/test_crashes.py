"""A server that dies during rollouts is restarted, and each rollout is scored exactly once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest
import yaml

from nemo_gym.jsonl import read_rows, write_rows

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SCRIPTED = HERE.parent / "endpoint" / "scripted.py"
AGENT = {
    "simple_agent": {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "faulty"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "datasets": [{"name": "example", "type": "example", "jsonl_fpath": "rows.jsonl"}],
    }
}
JUDGE = {"judge": {"type": "responses_api_models", "name": "policy_model"}}
CONFIG = {
    "faulty": {"resources_servers": {"faulty": {"entrypoint": "app.py", **JUDGE}}},
    "faulty_agent": {"responses_api_agents": AGENT},
}
CRASHES = {
    "in-a-tool": {"calls": [("act", {"how": "die once"})], "notes": 0},
    "in-seed": {"seed": "die once"},
    "in-verify": {"grade": "die once"},
}


@pytest.fixture(scope="module")
def finished(shared_workplace, row_of):
    """A run in which each crash happens once, with sound rollouts in parallel."""
    folder = shared_workplace.folder
    shutil.copytree(HERE / "environment", folder, dirs_exist_ok=True)
    shared_workplace.write("faulty.yaml", yaml.safe_dump(CONFIG))
    sound = [row_of(f"sound-{number}", [("note", {})] * 2) for number in range(20)]
    write_rows(folder / "rows.jsonl", [*sound, *(row_of(name, **crash) for name, crash in CRASHES.items())])
    with subprocess.Popen(
        [sys.executable, SCRIPTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as endpoint:
        assert endpoint.stdout is not None
        url = f"http://127.0.0.1:{int(endpoint.stdout.readline())}/v1"
        yield shared_workplace.run(
            "ng_e2e_collect_rollouts",
            "+config_paths=[faulty.yaml,responses_api_models/openai_model/configs/openai_model.yaml]",
            f"+policy_base_url={url}",
            "+policy_api_key=none",
            "+policy_model_name=scripted",
            "+split=example",
            "+output_jsonl_fpath=out.jsonl",
            "+head_server.port=0",
            "+max_attempts=10",
            "+retry_pause_s=0.2",
        )
        endpoint.communicate()


def test_every_rollout_is_scored_once_despite_crashes(finished, shared_workplace):
    assert finished.code == 0, finished.err
    assert "23 planned = 23 scored + 0 failed + 0 unresolved\n" in finished.out
    results = list(read_rows(shared_workplace.folder / "out.jsonl"))
    assert Counter(row["case"] for row in results) == Counter([*CRASHES, *(f"sound-{n}" for n in range(20))])
    assert {row["reward"] for row in results} == {1.0}


def test_crashed_attempts_are_recorded_as_lost(finished, shared_workplace):
    failures = list(read_rows(shared_workplace.folder / "out_failures.jsonl"))
    assert {row["_ng_failure_class"] for row in failures} == {"lost"}
    assert {row["_ng_failure_tier"] for row in failures} == {"environment"}
    assert set(CRASHES) <= {row["case"] for row in failures}
    record = orjson.loads((shared_workplace.folder / "out_run.json").read_bytes())
    assert record["outcomes"]["repeated_attempts"] == len(failures)


def test_each_crash_is_reported_and_cleaned_up(finished, shared_workplace):
    process = "faulty"
    assert 1 <= finished.err.count(f"server '{process}' ended with exit code 3; its rollouts under way are lost") <= 3
    assert f"server '{process}' is up again" in finished.err
    assert shared_workplace.left_over() == []
