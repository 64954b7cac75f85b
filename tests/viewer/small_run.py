"""The files of a small run: two tasks, played twice, of which one rollout failed."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.jsonl import write_rows

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
HOSTILE = "</script><script>document.title='taken over'</script><!--<script><img src=x onerror=alert(1)>"


def write_run(folder: Path, name: str = "small") -> Path:
    """Write the files of a run and return the one of its scored rollouts."""
    results = folder / f"{name}.jsonl"
    write_rows(folder / f"{name}_materialized_inputs.jsonl", [_row(task, at) for task in (0, 1) for at in (0, 1)])
    write_rows(results, [_scored(0, 0, 1.0, "Four."), _scored(0, 1, 0.0, HOSTILE), _scored(1, 0, 0.5, "A red dot.")])
    write_rows(
        folder / f"{name}_failures.jsonl",
        [
            _row(1, 1)
            | {
                "_ng_failure_class": "timeout",
                "_ng_failure_message": "the rollout took longer than 5 s",
                "_ng_failure_server": "counter",
                "_ng_failure_tier": "environment",
                "_ng_attempt_index": 0,
            }
        ],
    )
    return results


def _row(task: int, repeat: int) -> dict[str, Any]:
    text = {"type": "input_text", "text": f"Question {task}"}
    image = [{"type": "input_image", "image_url": PIXEL, "detail": "auto"}] if task else []
    return {
        "responses_create_params": {"input": [{"role": "user", "content": [text, *image]}]},
        "subset": "hard" if task else "easy",
        "agent_ref": {"type": "responses_api_agents", "name": "counter_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def _scored(task: int, repeat: int, reward: float, answer: str) -> dict[str, Any]:
    message = {
        "id": f"msg_{task}_{repeat}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": answer, "annotations": []}],
    }
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    response = {"id": "resp", "model": "a-model", "output": [message], "status": "completed", "usage": usage}
    return _row(task, repeat) | {"response": response, "reward": reward}


def write_record(results: Path, **changes: Any) -> None:
    """Write the record of a session of this process that still runs."""
    outcomes = {
        "planned": 4,
        "scored": 3,
        "kept": 0,
        "failed": {"timeout": 1},
        "unresolved": 0,
        "repeated_attempts": 0,
    }
    record = {
        "state": "running", "started_at": "2030-01-01T00:00:00+00:00", "command": ["ng"], "pid": os.getpid(),
        "host": socket.gethostname(), "versions": {"nemo_gym": "1.0"}, "outcomes": outcomes, "concurrency": 8,
        "input": {"path": "data/test.jsonl", "sha256": "0" * 64, "bytes": 9}, "settings": {"num_repeats": 2},
        **changes,
    }  # fmt: skip
    results.with_name(f"{results.stem}_run.json").write_bytes(orjson.dumps(record))
