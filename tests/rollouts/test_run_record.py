"""The record of a run: its command, inputs, settings and outcomes, without secrets."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import socket

import orjson
import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.loading import load
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.shared_run import SharedRun
from nemo_gym.config.subject import RunSubject
from nemo_gym.published.whole_config import run_of_config
from nemo_gym.rollouts.run_record import masked_command
from nemo_gym.version import __version__
from tests.each_case import each_case

pytestmark = pytest.mark.bare

SERVERS = """
policy_model_name: qwen
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      host: 127.0.0.1
      port: 4711
      base_url: http://user:hunter2@10.0.0.7:8000/v1
      api_key: hunter2-hunter2
      model: ${policy_model_name}
      return_token_id_information: false
      uses_reasoning_parser: true
      chat_template_kwargs: {enable_thinking: true, hf_token: hunter2}
"""


async def test_finished_run_records_settings_and_outcomes(run_tasks, make_task, tmp_path):
    rows = [make_task(0), make_task(1, act="crash"), make_task(2, act="answer", bytes='{"_ng_no_persist": true}')]
    rows.append(make_task(3, act="fail_until", until=1, failure_class="lost"))
    run = await run_tasks(rows, num_repeats=2, limit=4, num_samples_in_parallel=3)
    record = run.record
    # Each field is a line, between two braces.
    assert run.files.record.read_bytes().count(b"\n") == len(record) + 2
    assert record["outcomes"] == {
        "planned": 8, "scored": 4, "kept": 0, "failed": {"agent_failed": 2}, "unresolved": 2, "repeated_attempts": 2,
    }  # fmt: skip
    assert (record["state"], record["reason"]) == ("finished", None)
    assert record["started_at"] <= record["ended_at"]
    assert (record["pid"], record["host"]) == (os.getpid(), socket.gethostname())
    assert record["versions"] == {"nemo_gym": __version__, "python": platform.python_version()}
    content = (tmp_path / "tasks.jsonl").read_bytes()
    assert record["input"] == {
        "path": str(tmp_path / "tasks.jsonl"),
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "rows": 4,
    }
    assert (record["settings"]["num_repeats"], record["settings"]["limit"], record["concurrency"]) == (2, 4, 3)
    assert record["earlier_sessions"] == []


async def test_record_lists_earlier_sessions_in_order(run_tasks, make_task):
    await run_tasks([make_task(0, act="fail_twice")])
    second = (await run_tasks(None, resume_from_cache=True)).record
    third = await run_tasks(None, resume_from_cache=True)
    assert [each["outcomes"]["failed"] for each in third.record["earlier_sessions"]] == [{"agent_failed": 1}] * 2
    assert third.record["earlier_sessions"][1]["started_at"] == second["started_at"]
    assert (third.record["outcomes"]["scored"], third.record["outcomes"]["failed"]) == (1, {})
    fresh = await run_tasks([make_task(0)], overwrite=True)
    assert fresh.record["earlier_sessions"] == []


async def test_record_shows_running_and_then_interrupted(run_tasks, make_task, tmp_path):
    path = tmp_path / "results" / "out_run.json"
    seen = []
    rows = [make_task(0), make_task(1, act="held")]
    running = asyncio.create_task(run_tasks(rows, on_record=lambda record, summary: seen.append(path.read_bytes())))
    async with asyncio.timeout(100):
        while not seen:  # noqa: ASYNC110 - the run sends no signal
            await asyncio.sleep(0.01)
    meanwhile = orjson.loads(seen[0])
    assert (meanwhile["state"], meanwhile["ended_at"], meanwhile["outcomes"]["unresolved"]) == ("running", None, 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    afterwards = orjson.loads(path.read_bytes())
    assert afterwards["state"] == "interrupted"
    assert (afterwards["outcomes"]["scored"], afterwards["outcomes"]["unresolved"]) == (1, 1)


async def test_session_without_recorded_end_was_killed(run_tasks, make_task):
    first = await run_tasks([make_task(0)])
    text = first.files.record.read_text().replace('"finished"', '"running"')
    first.files.record.write_text(text)
    second = await run_tasks(None, resume_from_cache=True)
    assert [each["state"] for each in second.record["earlier_sessions"]] == ["killed"]


async def test_unreadable_record_only_logs_a_warning(run_tasks, make_task, caplog):
    first = await run_tasks([make_task(0)])
    first.files.record.write_text("{half")
    assert (await run_tasks(None, resume_from_cache=True)).record["state"] == "finished"
    assert "out_run.json is unreadable" in caplog.text


# The models


@pytest.fixture
def servers(tmp_path):
    path = tmp_path / "servers.yaml"
    path.write_text(SERVERS)
    return path


def subject_of(config: DictConfig) -> RunSubject:
    return RunSubject.of_run(run_of_config(config))


@pytest.fixture(params=["started here", "running already"])
def subject(request, servers):
    """The subject of the same servers, from their YAML or as their head server describes them."""
    if request.param == "running already":
        run = load([str(servers)], [], skip_dotenv=True)
        return SharedRun.model_validate_json(SharedRun.of(run).model_dump_json(exclude_defaults=True)).subject
    return RunSubject.of_run(load([str(servers)], [], skip_dotenv=True))


def test_models_are_recorded_without_addresses_and_secrets(subject):
    assert subject.policy_model_name == "qwen"
    assert subject.models == {
        "policy_model": {
            "type": "responses_api_models",
            "implementation": "vllm_model",
            "entrypoint": "app.py",
            "model": "qwen",
            "return_token_id_information": False,
            "uses_reasoning_parser": True,
            "chat_template_kwargs": {"enable_thinking": True},
        }
    }
    assert "hunter2" not in subject.model_dump_json()
    assert "4711" not in subject.model_dump_json()


def test_headers_are_not_recorded():
    block = "m: {responses_api_models: {x: {entrypoint: app.py, default_headers: {x-login: hunter2}}}}"
    assert subject_of(OmegaConf.create(block)).models["m"] == {
        "type": "responses_api_models",
        "implementation": "x",
        "entrypoint": "app.py",
    }


def test_config_hash_ignores_addresses_and_keys():
    def hash_of(text: str) -> str | None:
        return subject_of(OmegaConf.create(text)).config_hash

    assert hash_of(SERVERS.replace("4711", "4712").replace("hunter2", "hunter3")) == hash_of(SERVERS)
    assert hash_of(SERVERS.replace("parser: true", "parser: false")) != hash_of(SERVERS)


def test_model_name_that_no_server_reads_is_ignored():
    sample = "policy_model: {responses_api_models: {sample_model: {entrypoint: app.py, seed: 1}}}\npolicy_model_name: "
    before = subject_of(OmegaConf.create(f"{sample}echo"))
    now = subject_of(OmegaConf.create(f"{sample}other"))
    assert (before.policy_model_name, now.differences_from(before)) == (None, [])
    # An earlier version recorded the name.
    earlier = before.model_copy(update={"policy_model_name": "echo"})
    assert now.differences_from(earlier) == []


def test_model_name_counts_without_a_model_server():
    assert subject_of(OmegaConf.create({"policy_model_name": "qwen"})).policy_model_name == "qwen"


def test_changed_model_name_is_reported_once(subject):
    other = subject_of(OmegaConf.create(SERVERS.replace("name: qwen", "name: llama")))
    assert other.differences_from(subject) == ["policy_model_name qwen → llama"]


@each_case(
    ("words", "recorded"),
    [
        (["ng", "--limit", "5", "+split=example"], ["ng", "--limit", "5", "+split=example"]),
        (["+policy_api_key=abc", "--output=x"], ["+policy_api_key=****", "--output=x"]),
        (["--model-api-key", "abc", "--limit", "5"], ["--model-api-key", "****", "--limit", "5"]),
        (["--policy-api-key=abc"], ["--policy-api-key=****"]),
        (["+a.b.api_key=abc", "++max_tokens=7"], ["+a.b.api_key=****", "++max_tokens=7"]),
        (["+judge={model: m, api_key: 'abc', n: 1}"], ["+judge={model: m, api_key: '****', n: 1}"]),
        (["+policy_base_url=http://me:abc@host:80/v1"], ["+policy_base_url=http://****@host:80/v1"]),
        (["+note=sk-0123456789"], ["+note=****"]),
    ],
)
def test_command_is_recorded_without_secrets(words, recorded):
    assert masked_command(words) == recorded


async def test_config_secrets_are_masked_in_all_records(run_tasks, make_task):
    secrets = SecretValues(["hunter2hunter2"])
    params = {"metadata": {"note": "hunter2hunter2"}}
    run = await run_tasks([make_task(0), make_task(1, act="crash")], secrets=secrets, responses_create_params=params)
    for path in (run.files.record, run.files.results, run.files.failures):
        text = path.read_text()
        assert "hunter2" not in text, path
        assert '"****"' in text, path
    assert run.record["settings"]["responses_create_params"] == {"metadata": {"note": "****"}}
