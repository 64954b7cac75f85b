"""Serve agents and model servers in the published style and collect rollouts from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.rollout_observability import AgentObservationBundle, TrajectoryRecord
from nemo_gym.rollouts.runner import Runner
from nemo_gym.schemas.row import Row
from tests.conftest import PATIENCE_S
from tests.published.style.folders import AGENTS_AND_MODEL_SERVERS

pytestmark = pytest.mark.slow

TOOL = {
    "type": "function",
    "name": "increment_counter",
    "description": "Add to the counter.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
    "strict": True,
}


def row_of(agent: str, *, tools: bool = False, **fields: Any) -> dict[str, Any]:
    params = {"input": "Begin.", **({"tools": [TOOL]} if tools else {})}
    return {"agent_ref": {"type": "responses_api_agents", "name": agent}, "responses_create_params": params, **fields}


FORWARDED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]},
]
PLANS = ("good", "good_in_the_end", "masked", "bad", "hopeless", "passing", "good_when_resumed")
ROWS = {
    # In each session the model calls the tool with 1, then with 2.
    "loop": row_of("tool_loop_agent", tools=True, initial_count=1, expected_count=4, uuid="u-1"),
    "loop_wrong": row_of("tool_loop_agent", tools=True, initial_count=1, expected_count=5),
    "environment": row_of("counter_environment", tools=True, initial_count=0, expected_count=3),
    "unverified": row_of("unverified_tool_loop_agent", tools=True, initial_count=0, expected_count=99),
    "harness": row_of("harness_agent", initial_count=7, expected_count=7),
    "jar": row_of("jar_agent", initial_count=2, expected_count=5, step=3),
    "observed": row_of("observed_agent", tools=True, initial_count=0, expected_count=3, task_id="t-1"),
    "reporting": row_of("reporting_agent", tools=True, initial_count=0, expected_count=3, instance_id="i-1"),
    "address": row_of("address_agent", initial_count=2, expected_count=5, step=3),
    "halved": row_of("halved_agent", initial_count=7, expected_count=7, uuid="u-2"),
    "debate": row_of("debate_agent", initial_count=7, expected_count=7),
    "panel": row_of("panel_agent", tools=True, initial_count=1, expected_count=4),
    "second_look": row_of("second_look_agent", tools=True, initial_count=0, expected_count=6),
    "forwarded": {
        **row_of("forwarding_agent", initial_count=3, expected_count=3),
        "responses_create_params": {"input": FORWARDED},
    },
    "sandboxed": row_of(
        "sandboxed_agent",
        setup_script="echo $GREETING > greeting; cat greeting",
        check="grep -q hello greeting && test ! -e /etc/shadow.bak",
    ),
    "own_provider": row_of("own_provider_agent", script="echo hello $WHO", expected_output="hello you\n"),
    "remote_sandbox": row_of("remote_sandbox_agent"),
    "shared_sandbox": row_of("shared_sandbox_environment", work="echo $GOMAXPROCS > made", check="grep -q 2 made"),
    **{plan: row_of("sentinel_agent", plan=plan) for plan in PLANS},
}
OBSERVED = ("loop", "harness", "observed", "reporting", "address")
GIVEN = {"all": ROWS, "observed": {name: ROWS[name] for name in OBSERVED}}
"""The rows of each collection, by its name."""


def rows_in(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


def by_name(rows: list[dict[str, Any]], names: list[str]) -> dict[str, dict[str, Any]]:
    return {names[row["_ng_task_index"]]: row for row in rows}


def configs_of(*folders: str) -> str:
    shipped = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
    return ",".join([shipped, *(f"{folder}/configs/{Path(folder).name}.yaml" for folder in folders)])


@pytest.fixture(scope="module")
def servers(place, endpoint):
    # One endpoint under two addresses, which the Host header distinguishes.
    urls = [f"{endpoint}/v1", f"{endpoint.replace('127.0.0.1', 'localhost')}/v1"]
    command = place.start_servers(
        f"+config_paths=[{configs_of(*AGENTS_AND_MODEL_SERVERS)}]",
        f"+policy_base_url=[{','.join(urls)}]",
        "+policy_api_key=dummy_key",
        "+policy_model_name=echo",
    )
    yield command
    command.end()


@pytest.fixture(scope="module")
def capture_dir(place):
    return place.folder / "capture"


@pytest.fixture(scope="module")
def observed_servers(place, capture_dir):
    folders = [folder for folder in AGENTS_AND_MODEL_SERVERS if Path(folder).name in _OBSERVED_FOLDERS]
    command = place.start_servers(
        f"+config_paths=[{configs_of(*folders)}]",
        "+observability_enabled=true",
        f"+model_call_capture_dir={capture_dir}",
        "+global_aiohttp_client_request_debug=true",
        # This port is closed, because calls to our own servers must not use the proxy.
        http_proxy="http://127.0.0.1:9",
    )
    yield command
    command.end()


_OBSERVED_FOLDERS = (
    "tool_loop_agent",
    "harness_agent",
    "observed_agent",
    "reporting_agent",
    "address_agent",
    "scripted_model",
)


def collect(place, servers, rows: str, output: str, *words: str, **env: str):
    place.write(f"data/{rows}.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in GIVEN[rows].values()))
    host, port = servers.head.removeprefix("http://").split(":")
    finished = place.run(
        "ng_collect_rollouts",
        f"+head_server.host={host}",
        f"+head_server.port={port}",
        f"+input_jsonl_fpath=data/{rows}.jsonl",
        f"+output_jsonl_fpath={output}",
        *words,
        **env,
    )
    return finished, place.folder / output


@pytest.fixture(scope="module")
def collected(place, servers):
    """Collect with all agents; return the rollouts by the row's name and the output file."""
    finished, output = collect(place, servers, "all", "results/all.jsonl")
    return finished, output, by_name(rows_in(output), [*ROWS])


@pytest.fixture(scope="module")
def observed(place, observed_servers, capture_dir):
    """Collect with the agents that use their rollout id, with model calls recorded."""
    words = ("+observability_enabled=true", f"+model_call_capture_dir={capture_dir}")
    finished, output = collect(place, observed_servers, "observed", "results/observed.jsonl", *words)
    assert finished.code == 0, finished.out + finished.err
    return by_name(rows_in(output), [*OBSERVED])


def test_published_tool_loop_earns_its_reward(collected):
    rollouts = collected[2]
    loop = rollouts["loop"]
    assert (loop["reward"], rollouts["loop_wrong"]["reward"]) == (1.0, 0.0)
    kinds = [item["type"] for item in loop["response"]["output"]]
    assert kinds == ["function_call", "function_call_output"] * 2 + ["message"]
    # The model counts its calls in a session, which needs its own cookies.
    assert loop["response"]["output"][-1]["content"][0]["text"] == "I was asked 3 times."
    assert loop["response"]["usage"]["total_tokens"] == 36
    assert loop["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 12
    assert (loop["uuid"], loop["expected_count"]) == ("u-1", 4)


async def test_collector_receives_time_and_tool_calls(servers):
    """The agents converse in their own `/v1/responses`, some behind a request to themselves."""
    host, port = servers.head.removeprefix("http://").split(":")
    client = ServerClient.load_from_global_config(BaseServerConfig(host=host, port=int(port)))
    runner = Runner(client, rollout_timeout_s=PATIENCE_S)
    ids = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    timings = {name: (await runner.run(Row({**ROWS[name], **ids}))).timing for name in ("loop", "panel", "forwarded")}
    await client.aclose()
    phases = {"seed", "model", "tools", "verify"}
    assert [set(each.phases) for each in timings.values()] == [phases, phases, phases - {"tools"}]
    assert [each.tools for each in timings.values()] == [
        {"increment_counter": (2, 0)},
        # The second environment rejects the text as a number, and it does not have the other tool.
        {"increment_counter": (4, 2), "increment_counter_twice": (2, 2)},
        {},
    ]
    # A call to itself is not counted in addition to the calls made for it. Each duration is rounded.
    for each in (timings["loop"], timings["forwarded"]):
        assert sum(each.phases.values()) <= each.seconds + 0.01


def test_environment_servers_block_is_an_alias_of_its_agent(collected):
    assert collected[2]["environment"]["reward"] == 1.0
    assert collected[2]["environment"]["agent_ref"]["name"] == "counter_environment"


def test_skipped_verification_uses_the_configured_reward(collected):
    unverified = collected[2]["unverified"]
    assert (unverified["reward"], unverified["verification_skipped"]) == (0.25, True)


def test_agent_forwards_the_resources_servers_metrics(collected):
    entries = orjson.loads(collected[1].with_name("all_aggregate_metrics.json").read_bytes())
    metrics = {each["agent_ref"]["name"]: each["agent_metrics"] for each in entries}
    assert metrics["tool_loop_agent"]["mean/reward"] == 0.5
    # The rollouts were not verified, so the base class does not compute metrics.
    assert metrics.get("unverified_tool_loop_agent", {}) == {}


def test_external_program_receives_the_models_address(collected, observed, servers, observed_servers):
    plain, captured = collected[2]["harness"], observed["harness"]
    assert (plain["reward"], captured["reward"]) == (1.0, 1.0)
    assert plain["response"]["usage"]["total_tokens"] == 24
    assert plain["base_url"] == f"{servers.servers['policy_model']['url']}/v1"
    assert plain["capture_id"] is None
    assert captured["base_url"] == f"{observed_servers.servers['policy_model']['url']}/ng-rollout/1-0/v1"
    assert captured["capture_id"] == "1-0"
    assert captured["ng_model_call_capture"]["metrics"]["num_calls"] == 2


def test_calls_by_address_ignore_the_proxy(collected, observed):
    for rollout, debug in ((collected[2]["address"], False), (observed["address"], True)):
        assert (rollout["reward"], rollout["tool_answer"]) == (1.0, {"success": True})
        assert (rollout["debug"], rollout["status"]) == (debug, "success")


def test_agent_may_share_one_cookie_jar(collected, servers):
    assert collected[2]["jar"]["reward"] == 1.0
    url = servers.servers["jar_agent"]["url"]
    answer = httpx.post(f"{url}/run", json=ROWS["jar"], trust_env=False, verify=False)
    classes = {name.partition("___")[0] for name in answer.cookies}
    assert {"CounterServer", "ScriptedModel", "JarAgent"} >= classes >= {"CounterServer", "JarAgent"}
    assert answer.headers["x-counted"] == "2"


def test_simple_agent_subclass_may_override_responses(collected):
    rollout = collected[2]["second_look"]
    assert rollout["reward"] == 1.0
    output = rollout["response"]["output"]
    assert [item["content"] for item in output if item.get("role") == "user"] == ["Look again."]
    assert rollout["response"]["usage"]["total_tokens"] == 72


def test_simple_agent_subclass_may_change_row_and_reward(collected):
    rollout = collected[2]["halved"]
    assert (rollout["reward"], rollout["whole_reward"], rollout["uuid"]) == (0.25, 1.0, "u-2")
    assert rollout["responses_create_params"]["input"][0]["content"] == "You are brief."


def test_agent_of_two_environments_catches_aiohttp_errors(collected):
    rollout = collected[2]["panel"]
    assert (rollout["reward"], rollout["second_reward"]) == (1.0, 0.0), rollout
    outputs = [orjson.loads(item["output"]) for item in rollout["response"]["output"] if "output" in item]
    assert [[each.get("error") for each in turn] for turn in outputs] == [[None, "HTTP 422", "HTTP 404"]] * 2
    assert "count" in outputs[0][1]["content"]
    assert [name.partition("___")[0] for name in rollout["cookie_names"]] == [
        "CounterServer", "CounterServer", "PanelAgent",
    ]  # fmt: skip
    assert len(rollout["opinions"]) == 2


def test_two_models_alternate_and_one_calls_another(collected):
    rollout = collected[2]["debate"]
    assert (rollout["reward"], rollout["runs"]) == (1.0, 1)
    heard = [item["content"] for item in rollout["response"]["output"] if item.get("role") == "user"]
    assert heard == ["policy_model has spoken.", "memo_model has spoken."]


@pytest.mark.needs_bubblewrap
def test_agent_commands_run_in_the_configured_sandbox(collected):
    rollout = collected[2]["sandboxed"]
    assert rollout["reward"] == 1.0
    assert rollout["sandbox"]["setup"] == {"stdout": "hello\n", "return_code": 0, "error_type": None}
    assert rollout["sandbox"]["labels"] == {"team": "red"}


def test_folders_own_sandbox_provider_gets_files_and_workdir(collected):
    rollout = collected[2]["own_provider"]
    assert (rollout["reward"], rollout["output"]) == (1.0, "hello you\n")
    assert Path(rollout["sandbox_id"]).name.startswith("own-")
    assert not Path(rollout["sandbox_id"]).exists()


def test_included_block_of_absent_provider_fails_when_used(collected):
    rollout = collected[2]["remote_sandbox"]
    assert (rollout["provider"], rollout["labels"]) == (["opensandbox"], {"sandbox-api": "opensandbox"})
    assert "'opensandbox' is not part of this package" in rollout["sandbox_error"]


def test_sandbox_is_shared_by_its_descriptor(collected):
    rollout = collected[2]["shared_sandbox"]
    assert rollout["reward"] == 1.0
    assert (rollout["descriptor"]["scope"], rollout["descriptor"]["workdir"]) == ("task", "/work")


def test_sentinels_select_the_results_file(place, servers, collected):
    _, output, rollouts = collected
    failures = by_name(rows_in(output.with_name("all_failures.jsonl")), [*ROWS])
    assert set(failures) == {"bad", "hopeless", "good_when_resumed"}
    assert {name for name in PLANS if name in rollouts} == {"good", "good_in_the_end", "masked"}
    assert rollouts["good_in_the_end"]["run_attempts"] == 3
    assert rollouts["masked"]["mask_sample"] is True
    assert "mask_sample" not in rollouts["good_in_the_end"]
    assert failures["bad"]["_ng_failure_class"] == "remote_agent_error"
    assert failures["bad"]["mask_sample"] is True
    assert failures["hopeless"]["_ng_failure_terminal"] is True

    _, output = collect(place, servers, "all", "results/all.jsonl", "+resume_from_cache=true")
    again = rows_in(output.with_name("all_failures.jsonl"))
    assert [row["plan"] for row in again].count("hopeless") == 1
    assert [row["plan"] for row in again].count("bad") == 2
    resumed = by_name(rows_in(output), [*ROWS])["good_when_resumed"]
    assert (resumed["reward"], resumed["_ng_attempt_index"]) == (1.0, 1)


def test_agent_observations_are_joined_with_its_calls(collected, observed):
    assert not {"ng_agent_observations", "ng_trajectory"} & collected[2]["observed"].keys()
    bundle = AgentObservationBundle.model_validate(observed["observed"]["ng_agent_observations"])
    assert [record.kind for record in bundle.records] == [
        "agent_invocation", "tool_call", "tool_call", "context_compaction", "sandbox",
    ]  # fmt: skip
    record = TrajectoryRecord.model_validate(observed["observed"]["ng_trajectory"])
    assert (record.task_id, record.rollout_id) == ("t-1", "2-0")
    named = [call.model_call_id for call in record.invocations[0].model_calls]
    assert named == [call.model_call_id for call in record.model_calls]
    assert len(named) == 3
    assert bundle.records[3].before_model_call.model_call_id == named[0]
    assert [(call.tool_name, call.status, call.output) for call in record.tool_calls] == [
        ("increment_counter", "completed", '{"success":true}')
    ] * 2
    assert all(call.started_at <= call.completed_at for call in record.tool_calls)
    (turn,) = record.turns
    assert (turn.question[0]["content"], turn.answer[0]["type"], turn.step_count) == ("Begin.", "message", 3)
    assert [(gap.code, gap.invocation_id) for gap in record.gaps] == [
        ("no_subagents", "main"), ("model_call_reference_unmatched", "main"),
    ]  # fmt: skip


def test_overridden_responses_sees_the_rollout_id(collected, observed, observed_servers):
    assert not {"ng_agent_observations", "base_url"} & collected[2]["reporting"].keys()
    rollout = observed["reporting"]
    assert rollout["reward"] == 1.0
    path = "/ng-rollout/3-0/v1/responses"
    assert (rollout["paths"], rollout["captures_tokens"], rollout["is_observed"]) == ([path, path], False, True)
    assert rollout["base_url"] == f"{observed_servers.servers['policy_model']['url']}/ng-rollout/3-0/v1"
    record = TrajectoryRecord.model_validate(rollout["ng_trajectory"])
    assert (record.task_id, record.rollout_id) == ("i-1", "3-0")
    assert [each.invocation_id for each in record.invocations] == ["main", "helper"]
    assert record.invocations[0].model_calls[0].model_call_id == record.model_calls[-1].model_call_id
    assert [(gap.code.removeprefix("model_call_"), gap.invocation_id) for gap in record.gaps] == [
        ("reference_unmatched", "helper"), ("ownership_unavailable", None), ("ownership_unavailable", None),
        ("turns_unavailable", None), ("conversation_unavailable", "helper"),
    ]  # fmt: skip


def test_call_paths_contain_the_rollout_id(observed, capture_dir):
    captured = observed["loop"]["ng_model_call_capture"]
    assert (captured["rollout_id"], captured["metrics"]["num_calls"]) == ("0-0", 3)
    assert {path.name.partition(".")[0] for path in capture_dir.iterdir()} >= {"0-0", "1-0", "2-0"}
    assert observed["loop"]["reward"] == 1.0


def test_session_stays_with_one_endpoint(servers, endpoint, seen):
    url = servers.servers["pinned_model"]["url"]
    with (
        httpx.Client(base_url=url, trust_env=False, verify=False) as one,
        httpx.Client(base_url=url, trust_env=False, verify=False) as two,
    ):
        for client in (one, two, one, two, two):
            answer = client.post("/v1/responses", json={"input": "hi"})
            assert answer.json()["output"][1]["content"][0]["text"] == "echo: hi"
            assert answer.json()["something_new"] == {"kept": True}
        completion = one.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "four"}]}).json()
    hosts = [request["headers"]["host"].partition(":")[0] for request in seen() if request["path"] == "/v1/responses"]
    assert hosts == ["127.0.0.1", "localhost", "127.0.0.1", "localhost", "localhost"]
    assert (completion["prompt_token_count"], completion["served"]) == (4, ["echo"])


def test_openai_model_subclass_may_change_requests(servers, endpoint, seen):
    url = servers.servers["tempered_openai_model"]["url"]
    for temperature in (1.5, 0.25):
        answer = httpx.post(
            f"{url}/v1/responses", json={"input": "hi", "temperature": temperature}, trust_env=False, verify=False
        )
        assert answer.status_code == 200
    assert [request["body"]["temperature"] for request in seen()] == [0.5, 0.25]


def test_vllm_model_subclass_returns_its_tokens(servers):
    url = servers.servers["counted_vllm_model"]["url"]
    with httpx.Client(base_url=url, trust_env=False, verify=False) as client:
        answers = [client.post("/v1/responses", json={"input": "hi"}).json() for _ in range(2)]
    assert [answer["metadata"]["calls"] for answer in answers] == ["1", "2"]
    (message,) = answers[0]["output"]
    assert message["prompt_token_ids"] == [ord(char) for char in "hi"]
    assert len(message["generation_token_ids"]) == len(message["generation_log_probs"]) == len("echo: hi")


def test_chat_completions_model_answers_in_three_dialects(servers):
    url = servers.servers["thin_model"]["url"]
    bodies = {
        "/v1/responses": {"input": "hi"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
        "/v1/messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    }
    for path, body in bodies.items():
        answer = httpx.post(f"{url}{path}", json=body, trust_env=False, verify=False)
        assert answer.status_code == 200
        assert "1 messages" in answer.text


def test_forwarded_conversation_arrives_as_it_was(collected, servers, endpoint, seen):
    url = servers.servers["forwarding_agent"]["url"]
    answer = httpx.post(f"{url}/run", json=ROWS["forwarded"], trust_env=False, verify=False, timeout=60).json()
    (sent,) = [request["body"] for request in seen() if request["path"] == "/v1/responses"]
    assert sent["input"] == FORWARDED
    for rollout in (answer, collected[2]["forwarded"]):
        assert rollout["reward"] == 1.0
        kinds = [item["type"] for item in rollout["response"]["output"]]
        assert kinds == ["message"] * 3 + ["reasoning", "message"]


def test_release_07_model_notes_its_execution(servers):
    url = servers.servers["traced_vllm_model"]["url"]
    short, long = ([{"role": "user", "content": "hi"}] * count for count in (1, 4))
    answers = [
        httpx.post(f"{url}{prefix}/v1/responses", json={"input": items}, trust_env=False, verify=False, timeout=60)
        for prefix, items in (("", short), ("/ng-rollout/3-1", short), ("", long))
    ]
    executions = [orjson.loads(answer.headers["x-model-execution"]) for answer in answers]
    upstream = {"upstream_attempted": True, "response_source": "upstream", "upstream_status_code": 200}
    assert executions[:2] == [{**upstream, "local_response_reason": None}] * 2
    assert executions[2]["local_response_reason"] == "most_items"
    # Without a reasoning parser, the reasoning stays in the text.
    (message,) = answers[0].json()["output"]
    assert message["content"][0]["text"].startswith("<think>Six times seven.</think>")


def test_rollout_prefix_reaches_the_agent(servers):
    url = servers.servers["jar_agent"]["url"]
    for prefix in ("", "/ng-rollout/3-1", "/ng-rollout/3-1/training-token-capture"):
        answer = httpx.post(f"{url}{prefix}/v1/responses", json={"input": "hi"}, trust_env=False, verify=False)
        assert answer.json()["object"] == "response"
