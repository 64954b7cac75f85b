"""Serve resources servers in the style of the published package and collect rollouts from them.

| folder            | idioms |
|-------------------|--------|
| `exact_word`      | stateless `verify(body)`, `extra="allow"`, walking the items of an output, refusals and reasoning |
| `running_sum`     | a dict by `request.session[SESSION_ID_KEY]`, custom seed request and response, `app.post("/add")(self.add)` with typed bodies, `verify(request, body)`, `HTTPException` |
| `any_tool`        | a catch-all route `/{tool_name}`, `PlainTextResponse`, `from app import …` in tests |
| `route_swap`      | `app.router.routes` edited, `add_api_route`, `judge_failsafe` around a custom route, raw JSON bodies |
| `opened_library`  | `app.router.lifespan_context` wrapped, a connection as a field, `TestClient` as a context manager |
| `event_hooks`     | `@app.on_event`, a background task, `PrivateAttr` |
| `phone_book`      | `model_post_init`, `PrivateAttr`, undeclared private attributes, `Path(__file__).parent`, `model_construct` |
| `prefix_tree`     | `__init__` overridden, `arbitrary_types_allowed`, fields without pydantic types |
| `asked_judge`     | `server_client.post` and `get_response_json`, create-params in the config, a semaphore, mocks with only `read` |
| `called_judge`    | `call_judge` for both APIs, `reraise_judge_errors`, `JudgeError`, `load_prompt_config`, `fill_prompt` |
| `graded_maths`    | `compute_metrics`, `get_key_metrics`, pass@k, majority, subsets, `REVERIFY_MODE` |
| `many_rewards`    | `BaseMultiRewardVerifyResponse` |
| `address_book`    | `get_global_config_dict`, `global_config_dict`, `_build_server_base_url`, `get_server_url`, `request`, `NeMoGymAsyncOpenAI`, patched configuration, `PARENT_DIR` |
| `worker_threads`  | `to_thread`, an executor, subprocesses, `asyncio.wait_for`, a semaphore created outside of a loop |
| `guess_number`    | `resources_servers.gymnasium.GymnasiumServer`, played by `gymnasium_agent` |
| `verified_cases`  | `VERIFIER_FIXTURE`, `exercise_verifier_fixture`, a mocked client in `app.py` |
| `task_box`        | `task_data.py`, `ResourcesSeedSessionRequest` with `EpisodeId` and `TaskId`, `close_session`, `ray_enabled` |
| `strict_word`     | a subclass of another folder's server |
| `pooled_counter`  | `is_nemo_gym_fastapi_entrypoint`, `num_workers`, routes that are nested functions, `import app` in tests |
| `sibling_modules` | its own packages and modules, `__init__.py` files, relative paths from the folder |
| `failed_rows`     | `NG_FAILURE_CLASS_KEY`, `mask_sample`, verifiers and tools that raise, aliases of row keys |
| `marked_rollouts` | its own middleware and exception handlers, `RolloutContextMiddleware`, another server's session |
| `summed_metrics`  | `aggregate_metrics` overridden with `super()`, `isinstance` of output items |
| `note_pad`        | `from __future__ import annotations`, attributes with the same names as ours (`sessions`, `_sessions`, `tools`, `/close_session`, `_close_session`), a lock per session, a clean-up task, `IsolatedAsyncioTestCase` |
| `shop_tools`      | routes created in a loop, from partials and from marked methods, `response_model`, status codes, `APIRouter`, `Depends`, aliases, `RootModel`, `computed_field`, `verify(body, request)`, `conftest.py` |
| `cohort_rank`     | rewards by comparing a task's rollouts, which wait for each other; `model_extra`, `aggregate_metrics` replaced |
| `spawned_pool`    | a spawned process pool that finds the folder's modules and files, `app.router.on_startup` |
| `asked_user`      | a second model as the user, a conversation kept in `request.session`, `super().seed_session` |
| `packaged_env`    | `pyproject.toml`, an entrypoint with another name, `config_paths` in a config, `_inherit_from`, `???`, `model_construct` of rows |
| `noted_over_mcp`  | `expose_tools_over_mcp`, `mcp_tools`, `mcp_allowed_tools_for_session`, `maybe_auto_expose` |
"""  # noqa: E501

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack

import httpx
import orjson
import pytest

from tests.each_case import each_case
from tests.published.style.folders import NAMES, RESOURCES_SERVERS
from tests.published.style.scripted_environments import SCRIPTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(project):
    configs = ",".join(f"{folder}/configs/{folder.split('/')[1]}.yaml" for folder in RESOURCES_SERVERS)
    command = project.start_servers(f"+config_paths=[models.yaml,{configs}]", "+results_dir=/somewhere")
    yield command
    command.end()


@pytest.fixture(scope="module")
def rollouts(servers, project):
    """Collect two rollouts of every example row; return them by folder."""
    rows = []
    for name in NAMES:
        examples = (project.folder / f"resources_servers/{name}/data/example.jsonl").read_bytes().splitlines()
        for example, script in zip(map(orjson.loads, examples), SCRIPTS[name], strict=True):
            example["responses_create_params"]["metadata"] = {"script": json.dumps(script)}
            example["agent_ref"] = {"type": "responses_api_agents", "name": agent_of(name)}
            rows.append(example)
    project.write("data/rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    finished = project.run(
        "ng_collect_rollouts",
        "+input_jsonl_fpath=data/rows.jsonl",
        "+output_jsonl_fpath=results/rollouts.jsonl",
        "+num_repeats=2",
    )
    assert (project.folder / "results/rollouts.jsonl").exists(), finished.out + finished.err
    found = {name: [] for name in NAMES}
    for kind in ("rollouts", "rollouts_failures"):
        for line in (project.folder / f"results/{kind}.jsonl").read_bytes().splitlines():
            row = orjson.loads(line)
            found[row["agent_ref"]["name"].rsplit("_", 2)[0]].append(row)
    for each in found.values():
        each.sort(key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))
    found["output"] = finished.out + finished.err
    return found


@pytest.fixture(scope="module")
def metrics(rollouts, project):
    entries = orjson.loads((project.folder / "results/rollouts_aggregate_metrics.json").read_bytes())
    return {each["agent_ref"]["name"]: each for each in entries}


def agent_of(name):
    return f"{name}_gymnasium_agent" if name == "guess_number" else f"{name}_simple_agent"


@pytest.fixture
def session(servers):
    """Return a function that creates a client of a resources server with a new session."""
    with ExitStack() as opened:
        yield lambda name: opened.enter_context(
            httpx.Client(base_url=servers.servers[name]["url"], trust_env=False, timeout=100, verify=False)
        )


def test_table_and_scripts_cover_every_folder():
    table = [line.split("`")[1] for line in __doc__.splitlines() if line.startswith("| `")]
    assert sorted(table) == sorted(SCRIPTS) == NAMES


@each_case(
    ("name", "reward", "fields"),
    [
        ("exact_word", 1.0, {"extracted_word": "Lutetia", "uuid": "row-1", "verifier_metadata": {"level": 1}}),
        ("running_sum", 1.0, {"total": 9}),
        ("any_tool", 1.0, {"seen": ["greet"], "num_calls": 1, "environment_name": "greeting"}),
        ("route_swap", 1.0, {}),
        ("opened_library", 1.0, {}),
        ("event_hooks", 1.0, {"events": ["startup"]}),
        ("phone_book", 1.0, {}),
        ("prefix_tree", 1.0, {}),
        ("asked_judge", 1.0, {"question": "Who wrote Emma?"}),
        ("called_judge", 0.8, {"score": 8}),
        ("many_rewards", 0.75, {"reward_components": {"short": 0.0, "polite": 1.0}}),
        (
            "address_book",
            1.0,
            {
                "answers": ["[[YES]] Score: 8"] * 2,
                "model_type": "responses_api_models",
                "shared_word": "plum",
                "interpolated": "plum-nothing",
                "own_domain": "other",
                "models": ["judge_model", "policy_model"],
                "results": "/somewhere",
                "has_cache_dir": True,
                "is_in_its_folder": True,
                "package_is_there": True,
            },
        ),
        ("worker_threads", 1.0, {"stdout": "42\n", "error": None}),
        ("guess_number", 1.0, {}),
        ("verified_cases", 1.0, {"expected_answer": "4"}),
        ("task_box", 1.0, {"content": "hat", "box": "red", "task_key": "task_box_simple_agent/hat-1"}),
        ("strict_word", 0.0, {"num_words": 4, "extracted_word": "Paris"}),
        ("pooled_counter", 1.0, {}),
        ("sibling_modules", 0.75, {"unknown": ["down"]}),
        ("marked_rollouts", 1.0, {"total_of_other": 7}),
        ("summed_metrics", 1.0, {"num_messages": 1, "num_calls": 0}),
        ("noted_over_mcp", 1.0, {}),
        ("note_pad", 1.0, {"lines": ["a", "b"]}),
        ("shop_tools", 1.0, {"basket": {"apple": 2, "pear": 1}, "currency": "eur", "mode": "exact"}),
        ("spawned_pool", 1.0, {"is_other_process": True}),
        ("asked_user", 1.0, {"asked": ["Who?", "Where?"]}),
    ],
)
def test_rollouts_earn_the_expected_reward(rollouts, name, reward, fields):
    assert len(rollouts[name]) == 2, rollouts["output"]
    for row in rollouts[name]:
        assert row.get("reward") == reward, row.get("_ng_failure_message")
        assert {field: row.get(field) for field in fields} == fields


def test_seeded_session_names_its_rollout(rollouts):
    rows = rollouts["task_box"]
    assert [row["capture_key"] for row in rows] == [f"{row['_ng_task_index']}-{n}" for n, row in enumerate(rows)]


def test_rollouts_of_a_task_may_wait_for_each_other(rollouts, metrics):
    assert [(row["reward"], row["group_size"]) for row in rollouts["cohort_rank"]] == [(0.0, 2), (1.0, 2)]
    assert metrics["cohort_rank_simple_agent"]["agent_metrics"] == {"sum/reward": 1.0}


def test_packaged_folder_may_inherit_another_config(rollouts, metrics):
    graded = [(row["reward"], row["answer"], row["from_global"]) for row in rollouts["packaged_env"]]
    assert graded == [(1.0, "lutetia", ["Paris", "Lutetia"])] * 2 + [(1.0, "rome", ["Rome"])] * 2
    assert metrics["packaged_env_simple_agent"]["key_metrics"] == {"pass@2/accuracy": 100.0}


def test_tools_return_what_their_handlers_return(rollouts):
    outputs = {
        name: [item["output"] for item in rollouts[name][0]["response"]["output"] if "output" in item]
        for name in ("running_sum", "any_tool", "opened_library", "phone_book", "task_box", "shop_tools")
    }
    assert outputs == {
        "running_sum": ['{"success":true,"total":5}', '{"success":true,"total":9}'],
        "any_tool": ['"Good morning, Ada."'],
        "opened_library": ['{"title":"Emma"}'],
        "phone_book": ['{"number":"555-0101"}'],
        "task_box": ['{"message":"The red box holds hat."}'],
        "shop_tools": [
            '{"item":"apple","count":2,"price":2.0,"total":4.0}',
            "bought one pear",
            '{"apple":2,"pear":1}',
        ],
    }


def test_folder_computes_its_own_metrics(rollouts, metrics):
    assert [row["reward"] for row in rollouts["graded_maths"]] == [1.0, 1.0, 0.0, 0.0]
    entry = metrics["graded_maths_simple_agent"]
    assert entry["agent_metrics"]["algebra/pass@2/accuracy"] == 100.0
    assert entry["key_metrics"]["pass@2/accuracy"] == entry["key_metrics"]["majority@2/symbolic_accuracy"] == 50.0
    summed = metrics["summed_metrics_simple_agent"]
    assert summed["key_metrics"] == {"sum/num_messages": 2, "mean/reward": 1.0}


def test_verifier_fails_rows_by_sentinel_or_exception(rollouts):
    failed, masked, raised, broken = (rollouts["failed_rows"][first : first + 2] for first in (0, 2, 4, 6))
    assert {row["_ng_failure_class"] for row in failed} == {"sandbox_lost"}
    assert [(row["mask_sample"], row["seen_rollout"]) for row in masked] == [(True, 0), (True, 1)]
    assert [row["seen_index"] for row in masked] == [row["_ng_task_index"] for row in masked]
    assert all("the verifier is broken" in row["_ng_failure_message"] for row in raised)
    assert all("broken brutally" in row["_ng_failure_message"] for row in broken)


def test_broken_tool_returns_its_error_in_the_body(session):
    answer = session("failed_rows").post("/break_it", json={"how": "brutally"})
    assert "RuntimeError: broken brutally" in answer.text


def test_each_rollout_has_its_own_id(rollouts):
    rows = rollouts["marked_rollouts"]
    assert [row["rollout_id"] for row in rows] == [
        f"{row['_ng_task_index']}-{index}" for index, row in enumerate(rows)
    ]
    assert {"/seed_session", "/verify"} <= set(rows[0]["paths"])


def test_game_runs_until_its_end(rollouts):
    for row in rollouts["guess_number"]:
        heard = [item["content"] for item in row["response"]["output"] if item["role"] == "user"]
        assert heard == ["Higher.", "Lower."]
        assert row["terminated"]


def test_stored_rollouts_are_verified_again(rollouts, project, session):
    rows = map(orjson.loads, (project.folder / "results/rollouts_materialized_inputs.jsonl").read_bytes().splitlines())
    inputs = [row for row in rows if row["agent_ref"]["name"] == "graded_maths_simple_agent"]
    client = session("graded_maths")
    for row, rollout in zip(inputs, rollouts["graded_maths"], strict=True):
        again = client.post("/verify", json={**row, "response": rollout["response"]}).json()
        assert (again["reward"], again["extracted_answer"]) == (rollout["reward"], rollout["extracted_answer"])


def test_closed_session_is_removed(session):
    client = session("task_box")
    client.post("/seed_session", json={"responses_create_params": {"input": "Put it in."}, "box": "blue"})
    assert client.post("/put", json={"content": "hat"}).json() == {"message": "The blue box holds hat."}
    assert client.post("/close_session").json() == {"closed": True}
    assert client.post("/put", json={"content": "hat"}).status_code == 500


def test_mcp_tools_use_the_rollouts_session(session):
    client = session("noted_over_mcp")
    mcp = client.post("/seed_session", json={"first_notes": ["bread"]}).json()["mcp"]
    call = {"name": "add_note", "arguments": {"text": "milk"}}
    answer = client.post(
        mcp["url_path"],
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
        headers={"accept": "application/json, text/event-stream", **mcp["headers"]},
    )
    assert answer.json()["result"]["content"][0]["text"] == '{"notes":["bread","milk"]}'
    assert client.post("/read_notes").json() == {"notes": ["bread", "milk"]}


SCRIPT = """
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import get_global_config_dict, get_hf_token, maybe_get_global_config_dict
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, ServerClient

assert maybe_get_global_config_dict() is None
print(get_hf_token(), HEAD_SERVER_KEY_NAME in get_global_config_dict())
client = ServerClient.load_from_global_config()
print([client.poll_for_status(name) for name in ("head_server", "running_sum", "judge_model")])
gone = ServerClient(
    head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=client.global_config_dict
)
print(gone.poll_for_status("head_server"))
"""


def test_script_reads_its_arguments_and_finds_the_servers(servers, project):
    host, port = servers.head.removeprefix("http://").split(":")
    script = project.write("prepare.py", SCRIPT)
    words = ["+hf_token=hf_0nly4t3st", f"+head_server.host={host}", f"+head_server.port={port}"]
    printed = subprocess.run(
        [sys.executable, script, "-v", *words],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed.stdout.splitlines() == [
        "hf_0nly4t3st True", "['success', 'success', 'success']", "connection_error",
    ], printed.stderr  # fmt: skip
