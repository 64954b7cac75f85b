"""The files of small runs, for tests that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

AGENT = "mcqa_simple_agent"


def rollout(task: int, repeat: int, reward: float, agent: str = AGENT, **fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": f"question {task}"},
        "response": {"output": [], "usage": {"input_tokens": 10, "output_tokens": 20 + repeat}},
        "reward": reward,
        "subject": "algebra" if task % 2 else "geometry",
        **fields,
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
    }


def failure(task: int, repeat: int, cause: str = "timeout", agent: str = AGENT) -> dict[str, Any]:
    row = rollout(task, repeat, 0.0, agent)
    del row["reward"], row["response"]
    return {**row, "_ng_failure_class": cause}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def write_run(path: Path, rewards: Sequence[Sequence[float]], agent: str = AGENT, **fields: Any) -> Path:
    """Write a run with these rewards of each task."""
    rows = [
        rollout(task, repeat, reward, agent, **fields)
        for task, repeats in enumerate(rewards)
        for repeat, reward in enumerate(repeats)
    ]
    return write_rows(path, rows)
