"""The group server of docs/tutorials/group_rewards.md rewards different answers, and can be graded again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from nemo_gym import ReverifyMode
from nemo_gym.testing import make_server, reply, rollout, serving

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "group_rewards.md"


async def test_group_example_can_be_graded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    app = tmp_path / "group_example.py"
    app.write_text(next(block for block in blocks if "verify_group" in block), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("group_example")
    server = make_server(module.VariedAnswersServer, group_verification={})
    assert server.config.REVERIFY_MODE is ReverifyMode.STATELESS
    async with serving(server), rollout(server, accepted=["elbe", "rhine"]) as attempt:
        graded = await attempt.verify(reply("Elbe"), compared_with=[reply("Rhine")])
        shared = await attempt.verify(reply("Rhine"), compared_with=[reply("Rhine")])
    assert (graded.reward, shared.reward) == (1.0, 0.5)
