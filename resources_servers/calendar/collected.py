"""Convert rollouts with a simulated user to rows: each conversation up to the user's last message."""

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
    """Yield a row for each rollout with the reward 1 whose simulated user followed its script.

    Raises `DataError` with file and line for an entry that is not a rollout of a row made with `--live`.
    """
    has_usable_rollout = False
    for number, _, rollout in read_lines(path):
        missing = [key for key in ("exp_cal_state", "user", "metadata", "response", "reward") if key not in rollout]
        if missing:
            raise DataError(
                f"{path}:{number}: {', '.join(missing)} missing. Pass the results of rows that were made with --live."
            )
        messages = _messages(rollout["response"]["output"])
        while messages and messages[-1]["role"] != "user":
            messages.pop()
        if rollout["reward"] == 1.0 and messages and _is_faithful(rollout, messages):
            has_usable_rollout = True
            yield {
                "responses_create_params": {"input": [*rollout["responses_create_params"]["input"], *messages]},
                "exp_cal_state": rollout["exp_cal_state"],
                "metadata": {key: rollout["metadata"][key] for key in ("persona", "agenda")},
            }
    if not has_usable_rollout:
        raise DataError(
            f"{path}: no rollout has the reward 1 and a user that followed its script. Collect more rollouts."
        )


def _messages(output: list[dict[str, Any]]) -> list[Message]:
    messages = []
    for item in output:
        if item["type"] == "message":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            messages.append({"role": item["role"], "content": strip_reasoning(text)})
    # Drop messages that contained only reasoning, because they are now empty and endpoints reject empty messages.
    return [message for message in messages if message["content"]]


def _is_faithful(rollout: dict[str, Any], messages: list[Message]) -> bool:
    """Return whether the simulated user followed its script turn by turn, in any wording."""
    script, must_tell = rollout["user"]["script"], rollout["metadata"]["must_tell"]
    turns = [message["content"] for message in messages if message["role"] == "user"]
    return len(turns) == len(script) and all(map(keeps, turns, script, must_tell))
