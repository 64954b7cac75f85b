"""Rows out of rollouts in which a simulated user talked to a policy: their conversations up to the last message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import DataError
from nemo_gym.grading import strip_reasoning
from nemo_gym.jsonl import read_lines
from resources_servers.calendar.wording import keeps

Message = dict[str, str]


def rows_of_rollouts(path: Path) -> Iterator[dict[str, Any]]:
    """A row of each rollout that earned its reward and whose user said all it had to say, and nothing else.

    Raises `DataError` with file and line for what is no rollout of a live row.
    """
    is_any_of_use = False
    for number, _, rollout in read_lines(path):
        lacking = [key for key in ("exp_cal_state", "user", "metadata", "response", "reward") if key not in rollout]
        if lacking:
            told = f"{path}:{number}: {', '.join(lacking)} missing"
            raise DataError(f"{told}. Give the results of rows that were made with --live.")
        said = _messages(rollout["response"]["output"])
        while said and said[-1]["role"] != "user":
            said.pop()
        if rollout["reward"] == 1.0 and said and _is_faithful(rollout, said):
            is_any_of_use = True
            yield {
                "responses_create_params": {"input": [*rollout["responses_create_params"]["input"], *said]},
                "exp_cal_state": rollout["exp_cal_state"],
                "metadata": {key: rollout["metadata"][key] for key in ("persona", "agenda")},
            }
    if not is_any_of_use:
        raise DataError(f"{path}: no rollout earned its reward with a user that kept to its script. Collect more.")


def _messages(output: list[dict[str, Any]]) -> list[Message]:
    messages = []
    for item in output:
        if item["type"] == "message":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            messages.append({"role": item["role"], "content": strip_reasoning(text)})
    # What was only thought leaves nothing, and endpoints refuse messages without a text.
    return [message for message in messages if message["content"]]


def _is_faithful(rollout: dict[str, Any], said: list[Message]) -> bool:
    """Whether the user's turns are those of its script, in whatever words."""
    script, must_tell = rollout["user"]["script"], rollout["metadata"]["must_tell"]
    turns = [message["content"] for message in said if message["role"] == "user"]
    return len(turns) == len(script) and all(map(keeps, turns, script, must_tell))
