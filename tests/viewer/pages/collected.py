"""Results that real collections write: every environment, each class of failure, attacks, and token ids."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson

from tests.conftest import Command, Workplace
from tests.rollouts.conftest import RowAgent, task
from tests.viewer.pages import hostile

REPOSITORY = Path(__file__).parents[3]
FIRST_ENVIRONMENT = "resources_servers/answer_match/configs/answer_match.yaml"
MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
TRAINED_MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
REPEATS = 2

CLASSES = ("environment_failed", "judge_failed", "overloaded", "invalid_task")
"""Classes of failure that an agent reports. The others happen to it."""


def collect_all(workplace: Workplace, endpoint: AbstractContextManager[str]) -> Path:
    """Collect every run at once, and return the folder of their results."""
    results = workplace.folder / "results"
    with RowAgent() as agent, endpoint as url:
        running = {
            "every environment": _every_environment(workplace, results),
            "failures": _from_agent(workplace, agent, results / "deep" / "failures.jsonl", failing_rows()),
            "attacks": _from_agent(workplace, agent, results / "attacks.jsonl", hostile.rows()),
            "tokens": _behind_endpoint(workplace, results / "tokens.jsonl", TRAINED_MODEL, url, "echo"),
            "refused": _behind_endpoint(workplace, results / "deep" / "refused.jsonl", MODEL, url, "bad-request"),
        }
        for name, command in running.items():
            finished = command.wait()
            assert "+ 0 unresolved" in finished.out, f"{name}: {finished.err}"
    return results


def failing_rows() -> list[dict[str, Any]]:
    """Return a row for each class of failure, and rows that are scored, the last one at its second attempt."""
    rows = [
        task(act="model_failed"), task(act="crash"), task(act="cut"), task(act="slow", lasts_s=300), task(act="ok"),
        *(task(act="fail_until", until=9, failure_class=each) for each in CLASSES),
        task(act="fail_until", until=1, status=503),
    ]  # fmt: skip
    return [{**row, "number": number} for number, row in enumerate(rows)]


def _every_environment(workplace: Workplace, results: Path) -> Command:
    return workplace.start(
        "ng_e2e_collect_rollouts", f"+config_paths=[{REPOSITORY}/configs/all_examples.yaml]", "--model-type",
        "sample_model", "+split=example", f"+num_repeats={REPEATS}", f"+output_jsonl_fpath={results}/all.jsonl",
        "+head_server.port=0", "+observability_enabled=true", f"+model_call_capture_dir={workplace.folder}/calls",
    )  # fmt: skip


def _from_agent(workplace: Workplace, agent: RowAgent, output: Path, rows: list[dict[str, Any]]) -> Command:
    path = workplace.write(f"{output.stem}_rows.jsonl", "\n".join(orjson.dumps(row).decode() for row in rows))
    return workplace.start(
        "ng_collect_rollouts", f"+head_server.port={agent.port}", "+agent_name=sound", f"+input_jsonl_fpath={path}",
        f"+output_jsonl_fpath={output}", f"+num_repeats={REPEATS}", "+rollout_timeout_s=30", "+max_attempts=2",
        "+retry_pause_s=0.01",
    )  # fmt: skip


def _behind_endpoint(workplace: Workplace, output: Path, model_server: str, url: str, model: str) -> Command:
    return workplace.start(
        "ng_e2e_collect_rollouts", f"+config_paths=[{REPOSITORY}/{FIRST_ENVIRONMENT},{REPOSITORY}/{model_server}]",
        f"+policy_base_url={url}/v1", "+policy_api_key=none", f"+policy_model_name={model}", "+split=example",
        f"+num_repeats={REPEATS}", f"+output_jsonl_fpath={output}", "+head_server.port=0",
    )  # fmt: skip
