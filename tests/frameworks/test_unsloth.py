"""Unsloth: a data set from a script, a server without agent and model, and rewards from `/verify` alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "resources_servers" / "reasoning_gym"
SCRIPT = FOLDER / "scripts" / "create_dataset.py"
CONFIG = "resources_servers/reasoning_gym/configs/resources_only.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "training" / "trl.md"
TIMEOUT_S = 150.0


def rewards(url, rows, texts):
    """Return the rewards of the documented function, which the trainer calls with a completion per row."""
    names: dict[str, Any] = {}
    exec(re.search(r"```python file=gym_reward.py\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1), names)
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    return names["gym_reward"](completions, list(map(json.dumps, rows)), url=url, prompts=[None] * len(rows))


def test_verify_alone_rewards_completions(run):
    """The counting environment has a session, which is empty without `/seed_session`."""
    params = {"input": [{"role": "user", "content": "Leave the counter alone."}]}
    rows = [{"responses_create_params": params, "expected_count": goal} for goal in (0, 1)]
    rows.append({"responses_create_params": params})
    url = run.servers["example_session_state_mgmt"]["url"]
    # The last row cannot be graded.
    assert rewards(url, rows, ["Done."] * 3) == [1.0, 0.0, None]


@pytest.mark.slow
def test_reasoning_gym_rows_are_verified_alone(workplace):
    command = [
        sys.executable,
        SCRIPT,
        "--task",
        "leg_counting",
        "--size",
        "6",
        "--seed",
        "42",
        "--output",
        "rows.jsonl",
    ]
    subprocess.run(command, cwd=workplace.folder, env=workplace.env, timeout=TIMEOUT_S, check=True)
    rows = [json.loads(line) for line in (workplace.folder / "rows.jsonl").read_text().splitlines()]
    assert len({row["question"] for row in rows}) == 6
    server = workplace.start_servers(f"+config_paths=[{CONFIG}]")
    assert list(server.servers) == ["reasoning_gym"]
    url = server.servers["reasoning_gym"]["url"]
    assert rewards(url, rows, [f"<answer>{row['answer']}</answer>" for row in rows]) == [1.0] * 6
    assert max(rewards(url, rows, ["I do not know."] * 6)) < 0.5
    server.end()
