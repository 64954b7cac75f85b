"""Rows of a run's files, as environments and collections write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.jsonl import dump_line

AGENT = {"type": "responses_api_agents", "name": "an_agent"}


def said(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "msg", "content": content, **fields}


def row(task: int = 0, repeat: int = 0, prompt: object = "A question", **fields: Any) -> dict[str, Any]:
    numbers = {"_ng_task_index": task, "_ng_rollout_index": repeat}
    return {"responses_create_params": {"input": prompt}, **fields, "agent_ref": AGENT, **numbers}


def scored(
    planned: Mapping[str, Any], *output: Mapping[str, Any], reward: float = 1.0, **fields: Any
) -> dict[str, Any]:
    return {**planned, "response": {"output": list(output)}, "reward": reward, **fields}


def failed(planned: Mapping[str, Any], cause: str = "timeout", **fields: Any) -> dict[str, Any]:
    return {**planned, "_ng_failure_class": cause, "_ng_failure_message": "it took too long", **fields}


def write_run(
    folder: Path,
    results: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]] = (),
    planned: Sequence[Mapping[str, Any]] = (),
    name: str = "x",
) -> Path:
    """Write the files of a run and return the one of its scored rollouts."""
    for suffix, rows in (("", results), ("_failures", failures), ("_materialized_inputs", planned)):
        (folder / f"{name}{suffix}.jsonl").write_bytes(b"".join(map(dump_line, rows)))
    return folder / f"{name}.jsonl"


def run_record(**fields: Any) -> bytes:
    """Return the record of a finished run."""
    outcomes = {"planned": 1, "scored": 1, "kept": 0, "failed": {}, "unresolved": 0, "repeated_attempts": 0}
    record = {
        "state": "finished",
        "started_at": "2020-01-01T00:00:00+00:00",
        "command": ["ng", "eval", "run"],
        "pid": 1,
        "host": "host",
        "versions": {},
        "outcomes": outcomes,
        "input": {"path": "tasks.jsonl", "sha256": "0", "bytes": 1},
        "settings": {},
    }
    return dump_line({**record, **fields})
