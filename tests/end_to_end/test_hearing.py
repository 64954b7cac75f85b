"""Recordings reach a model endpoint without loss: one that hears them earns every reward, in both dialects."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from nemo_gym.jsonl import read_rows
from resources_servers.audio_digits.prepare import prepare
from tests.end_to_end.behind_endpoint import collect_behind

pytestmark = pytest.mark.slow

LISTENER = Path(__file__).parents[2] / "resources_servers" / "audio_digits" / "tests" / "listener.py"
ENVIRONMENT = "resources_servers/audio_digits/configs/audio_digits.yaml"
AGENT = {"agent_ref": {"type": "responses_api_agents", "name": "audio_digits_simple_agent"}}
ROWS = 12


@pytest.fixture(scope="module")
def rows(shared_workplace):
    """A file with rows that name recordings, one that holds a recording, and one that may not name its recording."""
    folder = shared_workplace.folder / "in"
    named = list(read_rows(prepare(folder / "digits.jsonl", ROWS)))
    held = list(read_rows(prepare(folder / "held.jsonl", 1, seed=1, embed=True)))
    params = {**held[0]["responses_create_params"], "metadata": {"audio_path": "digits_audio/00001.wav"}}
    lines = [*named, *held, {**held[0], "responses_create_params": params}]
    (folder / "digits.jsonl").write_bytes(b"\n".join(orjson.dumps({**AGENT, **row}) for row in lines))
    return folder / "digits.jsonl"


@pytest.fixture(scope="module")
def collect(shared_workplace, run_endpoint, rows):
    """Return a function that collects the rows with a model server in front of the listener."""

    def collected(model_server):
        return collect_behind(shared_workplace, run_endpoint(LISTENER), model_server, ENVIRONMENT, rows)

    return collected


def test_recordings_arrive_as_chat_completions(collect):
    scored, failed = collect("vllm_model")
    assert [row["reward"] for row in scored] == [1.0] * (ROWS + 1)
    # The server's `audio_root` is not set.
    assert [row["_ng_failure_class"] for row in failed] == ["invalid_task"]
    assert "this server does not read files" in failed[0]["_ng_failure_message"]


def test_recordings_arrive_as_responses(collect):
    scored, failed = collect("openai_model")
    assert [row["reward"] for row in scored] == [1.0] * (ROWS + 2)
    assert failed == []
