"""Collection with running servers, or with servers started by the command."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from pathlib import Path

import orjson
import pytest
import yaml

from tests.conftest import PATIENCE_S
from tests.each_case import each_case
from tests.rows import rows_of

pytestmark = pytest.mark.slow

ENVIRONMENT = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
CONFIG = f"+config_paths=[{ENVIRONMENT},responses_api_models/sample_model/configs/sample_model.yaml]"
EXAMPLES = Path(__file__).parents[2] / "resources_servers/example_multi_step/data/example.jsonl"
AGENT = {"type": "responses_api_agents", "name": "example_multi_step_simple_agent"}
KEY = ("_ng_task_index", "_ng_rollout_index")
SLOW = pytest.mark.slow


def in_order(path):
    return sorted(rows_of(path), key=lambda row: [row[part] for part in KEY])


def collected(workplace, output, *words, seed=0):
    """Return the finished command and its rollouts in order."""
    finished = workplace.run(
        "ng_e2e_collect_rollouts",
        CONFIG,
        "+split=example",
        f"+output_jsonl_fpath={output}",
        "+head_server.port=0",
        f"++policy_model.responses_api_models.sample_model.seed={seed}",
        *words,
    )
    assert finished.code == 0, finished.err
    return finished, in_order(workplace.folder / output)


@pytest.fixture(scope="module")
def first(shared_workplace):
    """Eight repeats of the five examples."""
    return collected(shared_workplace, "results/first.jsonl", "+num_repeats=8")


@each_case("words", [["--num-repeats", "99999999999"], ["--num-repeats", "2000001"], []])
def test_huge_plan_is_refused_before_anything_is_written(workplace, words):
    (workplace.folder / "many.yaml").write_text(
        yaml.safe_dump(
            {
                "many": {"resources_servers": {"example_multi_step": {"entrypoint": "app.py"}}},
                "many_agent": {
                    "responses_api_agents": {
                        "simple_agent": {
                            "entrypoint": "app.py",
                            "resources_server": {"type": "resources_servers", "name": "many"},
                            "model_server": {"type": "responses_api_models", "name": "policy_model"},
                            "datasets": [
                                {"name": "x", "type": "example", "jsonl_fpath": "rows.jsonl", "num_repeats": 4000000}
                            ],
                        }
                    }
                },
            }
        )
    )
    workplace.write("rows.jsonl", "".join(f'{{"responses_create_params":{{"input":"{n}"}}}}\n' for n in range(5)))
    finished = workplace.run(
        "ng_e2e_collect_rollouts", "--config", "many.yaml", "--model-type", "sample_model", "--split", "example",
        "--output", "results/x.jsonl", *words,
    )  # fmt: skip
    rollouts = f"{5 * int(words[1] if words else 4000000):,}"
    plan, error = finished.err.splitlines()
    assert (finished.code, plan) == (1, f"plan: {rollouts} rollouts of 5 rows, in results/x_materialized_inputs.jsonl")
    assert error.startswith(f"Error: the plan has {rollouts} rollouts. Add --yes")
    assert not [path for path in workplace.folder.rglob("x*") if path.is_file() and path.suffix != ".lock"]


def test_run_files_are_written_next_to_the_output(first, shared_workplace):
    results = shared_workplace.folder / "results"
    names = {str(path.relative_to(results)) for path in results.rglob("first*") if path.is_file()}
    assert names >= {
        "first.jsonl", "first_materialized_inputs.jsonl", "first_failures.jsonl", "first_aggregate_metrics.json",
    }  # fmt: skip
    assert (results / "first/preprocessed_datasets/example.jsonl").is_file()
    assert (results / "first_failures.jsonl").read_bytes() == b""
    logs = {path.name for path in (results / "first_run/logs").iterdir()}
    servers = ("example_multi_step", AGENT["name"], "policy_model")
    assert logs == {f"{name}.log" for name in ("head_server", *servers)}


def test_every_task_has_each_repeat_once(first, shared_workplace):
    _, rollouts = first
    assert [tuple(row[part] for part in KEY) for row in rollouts] == [
        (task, repeat) for task in range(5) for repeat in range(8)
    ]
    inputs = in_order(shared_workplace.folder / "results/first_materialized_inputs.jsonl")
    examples = rows_of(EXAMPLES)
    for row, rollout in zip(inputs, rollouts, strict=True):
        assert row["agent_ref"] == AGENT
        assert {**row, **examples[row["_ng_task_index"]]} == row
        # The result contains all fields of the row, with the response and the reward.
        assert {**rollout, **row} == rollout
        assert rollout["response"]["object"] == "response"
        assert rollout["reward"] in (0.0, 1.0)


def test_metrics_match_the_rollouts(first, shared_workplace):
    finished, rollouts = first
    (metrics,) = orjson.loads((shared_workplace.folder / "results/first_aggregate_metrics.json").read_bytes())
    assert metrics["agent_ref"] == {"name": AGENT["name"]}
    mean = sum(row["reward"] for row in rollouts) / len(rollouts)
    assert metrics["agent_metrics"]["mean/reward"] == pytest.approx(mean)
    assert len(metrics["group_level_metrics"]) == 5
    assert re.search(r"^mean/reward +\S+$", finished.out, re.MULTILINE)


def test_summary_reports_outcomes_and_files(first):
    finished, rollouts = first
    tokens = [sum(row["response"]["usage"][f"{kind}_tokens"] for row in rollouts) for kind in ("input", "output")]
    *lines, look = finished.out.splitlines()[-5:]
    assert lines == [
        "40 planned = 40 scored + 0 failed + 0 unresolved",
        f"tokens: {tokens[0]:,} input + {tokens[1]:,} output",
        "rollouts: results/first.jsonl",
        "metrics:  results/first_aggregate_metrics.json",
    ]
    # The program has its path unless it is on the PATH.
    assert re.fullmatch(r"look:     (\S*/)?ng view results/first\.jsonl", look)


def test_plan_is_printed_before_the_collection(first, shared_workplace):
    finished, _ = first
    lines = [line for line in finished.err.splitlines() if not line.startswith("port ")]
    assert lines[0].startswith("3 servers ready; ")
    assert lines[1] == "plan: 5 tasks × 8 repeats = 40 rollouts, at most 40 at once, into results/first.jsonl"
    for words, plan in (
        (["--concurrency=2"], "5 rollouts of 5 tasks, at most 2 at once"),
        (["--resume", "--concurrency=auto", "++num_repeats={_default: 3}"],
         "5 tasks × 3 repeats = 15 rollouts, 5 of them done earlier, with adaptive concurrency"),
        (["--resume", "++num_repeats={_default: 3}"], None),
    ):  # fmt: skip
        finished, _ = collected(shared_workplace, "results/planned.jsonl", *words)
        plans = [line for line in finished.err.splitlines() if line.startswith("plan: ")]
        assert plans == ([f"plan: {plan}, into results/planned.jsonl"] if plan else [])


def test_progress_without_terminal_is_a_line_per_tenth(first):
    finished, _ = first
    lines = [line for line in finished.err.splitlines() if " rollouts (" in line]
    assert 1 <= len(lines) <= 10
    done = [int(line.partition("/")[0]) for line in lines]
    assert done == sorted(set(done))
    assert done[-1] == 40
    assert len({count * 10 // 40 for count in done}) == len(done)
    assert "\r" not in finished.err
    assert "\x1b" not in finished.err + finished.out


def test_same_seed_gives_the_same_rollouts(first, shared_workplace):
    _, rollouts = first
    _, again = collected(shared_workplace, "results/again.jsonl", "+num_repeats=8", "+num_samples_in_parallel=3")
    _, other = collected(shared_workplace, "results/other.jsonl", "+num_repeats=8", seed=1)
    assert again == rollouts
    assert other != rollouts
    assert [row["responses_create_params"] for row in other] == [row["responses_create_params"] for row in rollouts]


def test_repeats_of_a_task_differ(first):
    _, rollouts = first
    for task in range(5):
        outputs = [orjson.dumps(row["response"]["output"]) for row in rollouts if row["_ng_task_index"] == task]
        assert len(set(outputs)) > 1


def test_model_calls_tools_and_sees_their_results(first):
    items = [item for row in first[1] for item in row["response"]["output"]]
    calls = {item["call_id"]: item for item in items if item["type"] == "function_call"}
    answers = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert calls.keys() == answers.keys()
    assert {call["name"] for call in calls.values()} == {"get_synonym_value", "extract_synonym_values"}


def test_earlier_output_is_not_overwritten_by_accident(first, shared_workplace):
    words = (CONFIG, "+split=example", "+output_jsonl_fpath=results/first.jsonl", "+num_repeats=8")
    results = shared_workplace.folder / "results/first.jsonl"
    before = results.read_bytes()
    refused = shared_workplace.run("ng_e2e_collect_rollouts", *words, "+head_server.port=0")
    assert refused.code == 1
    assert refused.err == (
        "Error: results/first.jsonl contains rollouts of an earlier run. Add --resume to "
        "continue it, --overwrite to replace it, or choose another output.\n"
    )
    resumed = shared_workplace.run("ng_e2e_collect_rollouts", *words, "+head_server.port=0", "--resume")
    assert resumed.code == 0
    assert "40 planned = 40 scored (40 of them earlier) + 0 failed + 0 unresolved\n" in resumed.out
    assert results.read_bytes() == before


def test_running_servers_are_found_and_used(first, workplace):
    servers = workplace.start_servers(CONFIG)
    finished = workplace.run(
        "ng_collect_rollouts",
        f"+input_jsonl_fpath={EXAMPLES}",
        f"+agent_name={AGENT['name']}",
        "+output_jsonl_fpath=out.jsonl",
        "+num_repeats=8",
        http_proxy="http://127.0.0.1:9",
    )
    assert finished.code == 0, finished.err
    assert "40 planned = 40 scored + 0 failed + 0 unresolved\n" in finished.out
    assert in_order(workplace.folder / "out.jsonl") == first[1]
    assert servers.end().code == 0


def test_missing_servers_report_how_to_start_them(workplace):
    finished = workplace.run(
        "ng_collect_rollouts", f"--input={EXAMPLES}", "--output=out.jsonl", "+head_server.port=1", "--limit", "1"
    )
    assert finished.code == 1
    assert finished.err.startswith("Error: no head server answers at http://127.0.0.1:1/")
    assert "Start the servers with ng_run" in finished.err
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("answer", [b"SSH-2.0-Other\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"])
def test_server_other_than_a_head_server_is_reported(workplace, answer):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def reply():
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        replying = threading.Thread(target=reply)
        replying.start()
        port = other.getsockname()[1]
        finished = workplace.run(
            "ng_collect_rollouts", f"--input={EXAMPLES}", "--output=out.jsonl", f"+head_server.port={port}"
        )
        replying.join()
    assert finished.code == 1
    assert finished.err.startswith(f"Error: no head server answers at http://127.0.0.1:{port}/")
    assert finished.err.count("\n") == 1


@pytest.mark.slow
def test_unresolved_unused_value_does_not_prevent_collection(workplace):
    workplace.write("unused.yaml", "unused: ${oc.env:NOWHERE_SET}\n")
    servers = workplace.start_servers(CONFIG.replace("]", ",unused.yaml]"))
    finished = workplace.run(
        "ng_collect_rollouts",
        f"--input={EXAMPLES}",
        f"--agent={AGENT['name']}",
        "--output=out.jsonl",
        "--limit=1",
    )
    assert finished.code == 0, finished.err
    assert servers.end().code == 0


def test_dry_run_collects_nothing(workplace):
    finished = workplace.run(
        "ng_e2e_collect_rollouts", CONFIG, "+split=example", "+output_jsonl_fpath=out.jsonl", "--dry-run"
    )
    assert (finished.code, finished.out) == (0, "3 servers can be started\n")
    assert list(workplace.folder.iterdir()) == []


def test_require_complete_fails_an_incomplete_run(workplace):
    words = (
        "ng_e2e_collect_rollouts",
        CONFIG,
        "+split=example",
        "+output_jsonl_fpath=out.jsonl",
        "+head_server.port=0",
    )
    words = (*words, "+num_repeats=200", "+num_samples_in_parallel=1", "+require_complete=true")
    finished = workplace.run(*words, "+dispatch_budget_s=0.1")
    assert finished.code == 1
    assert re.fullmatch(
        r"Error: require_complete: \d+ of 1000 rollouts were not scored\. Resume out\.jsonl with "
        r"--resume\.",
        finished.err.splitlines()[-1],
    )
    assert workplace.run(*words, "--resume", "+num_samples_in_parallel=64").code == 0


def test_all_setting_problems_are_reported_at_once(workplace):
    finished = workplace.run("ng_e2e_collect_rollouts", CONFIG, "+split=exampel", "+outptu_jsonl_fpath=out.jsonl")
    assert finished.code == 2
    *_, error = finished.err.splitlines()
    assert error == (
        "Error: output_jsonl_fpath is missing (is 'outptu_jsonl_fpath' a misspelling of it?): add --output …; "
        "split: it must be 'train', 'validation', 'benchmark' or 'example', but is "
        "'exampel'. Did you mean 'example'? --help lists all settings."
    )


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_interrupted_run_stops_servers_and_can_resume(workplace, number):
    workplace.environment("slow", SLOW_SERVER)
    words = (
        "+config_paths=[slow.yaml,responses_api_models/sample_model/configs/sample_model.yaml]",
        "+split=example",
        "+output_jsonl_fpath=out.jsonl",
        "+num_repeats=100",
        "+head_server.port=0",
    )
    workplace.write("slow.yaml", yaml.safe_dump(SLOW_CONFIG))
    workplace.write("examples.jsonl", '{"responses_create_params": {"input": "hello"}}\n')
    command = workplace.start("ng_e2e_collect_rollouts", *words, "+num_samples_in_parallel=2")
    # The other 90 rollouts take more than ten seconds, so that the signal arrives before their end.
    command.wait_for("/100 rollouts")
    finished = command.end(number)
    assert finished.code == 130
    assert "Traceback" not in finished.err
    assert "Resume out.jsonl with --resume" in finished.err
    assert workplace.left_over() == []
    kept = len(rows_of(workplace.folder / "out.jsonl"))
    assert 10 <= kept < 100
    resumed = workplace.run("ng_e2e_collect_rollouts", *words, "+resume_from_cache=true")
    assert f"100 planned = 100 scored ({kept} of them earlier)" in resumed.out


@pytest.mark.parametrize(
    "gap_s", [0.1, *(pytest.param(gap_s, marks=pytest.mark.slow) for gap_s in (0.0, 0.02, 0.05, 0.5))]
)
def test_second_ctrl_c_ends_a_run_like_one(workplace, gap_s):
    workplace.environment("slow", SLOW_SERVER)
    workplace.write("slow.yaml", yaml.safe_dump(SLOW_CONFIG))
    workplace.write("examples.jsonl", '{"responses_create_params": {"input": "hello"}}\n')
    command = workplace.start(
        "ng_e2e_collect_rollouts",
        "+config_paths=[slow.yaml,responses_api_models/sample_model/configs/sample_model.yaml]",
        "+split=example",
        "+output_jsonl_fpath=out.jsonl",
        "+num_repeats=5000",
        "+head_server.port=0",
    )
    command.wait_for("/5000 rollouts")
    for _ in range(2):
        command.send(signal.SIGINT)
        time.sleep(gap_s)
    finished = command.end()
    assert finished.code == 130
    assert "Traceback" not in finished.err
    assert "Resume out.jsonl with --resume" in finished.err
    assert workplace.left_over() == []


def test_server_death_without_restart_stops_the_run(workplace):
    workplace.environment("slow", SLOW_SERVER)
    words = (
        "+config_paths=[slow.yaml,responses_api_models/sample_model/configs/sample_model.yaml]",
        "+split=example",
        "+output_jsonl_fpath=out.jsonl",
        "+num_repeats=200",
        "+head_server.port=0",
        "+num_samples_in_parallel=2",
        "+restart_limit=0",
    )
    workplace.write("slow.yaml", yaml.safe_dump(SLOW_CONFIG))
    workplace.write("examples.jsonl", '{"responses_create_params": {"input": "hello"}}\n')
    command = workplace.start("ng_e2e_collect_rollouts", *words)
    deadline = time.monotonic() + PATIENCE_S
    results = workplace.folder / "out.jsonl"
    while not (results.exists() and rows_of(results)) and time.monotonic() < deadline:
        time.sleep(0.05)
    # The second newest process is the model server, because only the head server starts later.
    by_age = sorted(workplace.processes(), key=lambda process: process.create_time())
    by_age[-2].kill()
    finished = command.wait()
    assert finished.code == 1
    assert "was ended by SIGKILL" in finished.err
    assert "200 planned = " in finished.err
    assert "Resume out.jsonl with --resume" in finished.err
    assert "Traceback" not in finished.err
    # The two running rollouts may have failed. All others remain for the next run.
    assert len(rows_of(workplace.folder / "out_failures.jsonl")) <= 2
    assert workplace.left_over() == []


SLOW_SERVER = """
import asyncio
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Slow(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        await asyncio.sleep(0.3)
        return 1.0
"""
SLOW_CONFIG = {
    "slow": {"resources_servers": {"slow": {"entrypoint": "app.py"}}},
    "slow_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "slow"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
                "datasets": [{"name": "example", "type": "example", "jsonl_fpath": "examples.jsonl"}],
            }
        }
    },
}


WORDLESS = """
from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class VerifyRequest(BaseVerifyRequest):
    shown: str | None


class Wordless(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse.grade(body, reward=0.0, extracted_answer=body.shown)
"""


@pytest.mark.parametrize(("shown", "is_warned"), [([None, ""], True), ([None, "B"], False)])
def test_run_without_any_answer_says_so(workplace, shown, is_warned):
    config = workplace.environment("wordless", WORDLESS)
    agent = (
        "wordless_agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: wordless}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
        "      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]\n"
    )
    workplace.write("agent.yaml", agent)
    rows = [
        {"responses_create_params": {"input": "hello"}, "agent_ref": {"name": "wordless_agent"}, "shown": each}
        for each in shown
    ]
    workplace.write("rows.jsonl", "".join(f"{orjson.dumps(row).decode()}\n" for row in rows))
    finished = workplace.run(
        "ng_e2e_collect_rollouts",
        config.replace("]", ",agent.yaml,responses_api_models/sample_model/configs/sample_model.yaml]"),
        "+split=example",
        "+output_jsonl_fpath=out.jsonl",
        "+head_server.port=0",
    )
    assert finished.code == 0, finished.err
    warning = "warning: no answer was recognised in 2 of 2 rollouts, so their rewards measure nothing."
    assert (warning in finished.err) is is_warned


CHOICE = CONFIG.replace("example_multi_step", "mcqa")
QUESTION = {
    "responses_create_params": {"input": "Which letter comes first?"},
    "options": [{"A": "a"}, {"B": "b"}],
    "expected_answer": "A",
}


def test_one_command_collects_a_users_own_rows(workplace):
    rows = [{**QUESTION, "number": number} for number in range(3)]
    workplace.write("rows.jsonl", "".join(f"{orjson.dumps(row).decode()}\n" for row in rows))
    words = (CHOICE, "+head_server.port=0", "--output", "out.jsonl", "--input", "rows.jsonl")
    finished = workplace.run("ng", "eval", "run", *words, "--num-repeats", "2")
    assert finished.code == 0, finished.err
    rows = rows_of(workplace.folder / "out.jsonl")
    assert sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows) == [
        (task, repeat) for task in range(3) for repeat in range(2)
    ]
    both = workplace.run("ng", "eval", "run", *words, "--split", "example", "--overwrite")
    assert (both.code, "Use only one" in both.err) == (2, True)
    missing = workplace.run("ng", "eval", "run", *words[:-1], "nowhere.jsonl", "--overwrite")
    assert (missing.code, "nowhere.jsonl" in missing.err) == (1, True)


def test_only_split_with_rows_needs_no_flag(workplace):
    finished = workplace.run("ng_e2e_collect_rollouts", CONFIG, "+output_jsonl_fpath=out.jsonl", "+head_server.port=0")
    assert finished.code == 0, finished.err
    assert len(rows_of(workplace.folder / "out.jsonl")) == 5
