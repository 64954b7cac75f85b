"""Collect rows with a model server in front of a test's own endpoint."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.rows import rows_of

Rows = list[dict[str, Any]]


def collect_behind(
    workplace: Any,
    endpoint: AbstractContextManager[str],
    model_server: str,
    environment: str,
    rows: Path,
) -> tuple[Rows, Rows]:
    """Start the servers, and return the scored and the failed rollouts of a file's rows."""
    output = workplace.folder / f"{model_server}.jsonl"
    config = f"responses_api_models/{model_server}/configs/{model_server}.yaml"
    with endpoint as url:
        run = workplace.start_servers(
            f"+config_paths=[{environment},{config}]", f"+policy_base_url={url}/v1", "+policy_api_key=none",
            "+policy_model_name=stub",
        )  # fmt: skip
        finished = workplace.run(
            "ng_collect_rollouts", f"+head_server.port={run.head.rpartition(':')[2]}",
            f"+input_jsonl_fpath={rows}", f"+output_jsonl_fpath={output}",
        )  # fmt: skip
        run.end()
    assert finished.code == 0, finished.err
    failures = output.with_name(f"{model_server}_failures.jsonl")
    return rows_of(output), rows_of(failures) if failures.exists() else []
