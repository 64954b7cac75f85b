"""Rows of runs for the tests of the index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.viewer.index.run_index import RunIndex

Row = dict[str, Any]


def planned(task: int, repeat: int = 0, **fields: object) -> Row:
    """Return a planned row."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"Question {task}\nwith  spaces"}]},
        **fields,
        "agent_ref": {"type": "responses_api_agents", "name": "counter_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def scored(task: int, repeat: int = 0, reward: float = 1.0, text: str = "Four.", **fields: object) -> Row:
    """Return a scored rollout with one call of the tool `increment`."""
    call = {"type": "function_call", "call_id": "c1", "name": "increment", "arguments": '{"by": 2}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "2"}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 10 * task, "output_tokens": 5}
    response = {"model": "a-model", "output": [call, result, message], "usage": usage}
    return planned(task, repeat, **fields) | {"response": response, "reward": reward}


def failed(task: int, repeat: int = 0, attempt: int = 0, cause: str = "timeout", **fields: object) -> Row:
    """Return a failed attempt."""
    return planned(task, repeat, **fields) | {
        "_ng_failure_class": cause,
        "_ng_failure_message": f"attempt {attempt} failed",
        "_ng_failure_server": "counter",
        "_ng_failure_tier": "environment",
        "_ng_attempt_index": attempt,
    }


def lines(*rows: object) -> bytes:
    """Return rows as JSON Lines, escaped like other programs do it."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def write(path: Path, *rows: object) -> Path:
    """Write rows to a file."""
    path.write_bytes(lines(*rows))
    return path


def append(path: Path, *rows: object) -> None:
    """Append rows to a file."""
    with path.open("ab") as file:
        file.write(lines(*rows))


def index_of(results: Path) -> RunIndex:
    """Return the complete index of a run, kept next to it."""
    index = RunIndex(RunFiles(results=results), results.parent / "cache", dict, lambda path: True)
    complete(index)
    return index


def complete(index: RunIndex) -> None:
    """Index what was appended."""
    while index.index_some(1.0):
        pass
