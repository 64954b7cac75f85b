"""The group server of docs/tutorials/environments.md rewards the shortest answer, and can be graded again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from nemo_gym import ReverifyMode
from nemo_gym.testing import make_server, reply, rollout, serving

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "environments.md"


async def test_group_example_can_be_graded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    app = tmp_path / "group_example.py"
    app.write_text(next(block for block in blocks if "verify_group" in block), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("group_example")
    server = make_server(module.ShortestServer, group_verification={})
    assert server.config.REVERIFY_MODE is ReverifyMode.STATELESS
    async with serving(server), rollout(server) as attempt:
        graded = await attempt.verify(reply("no"), compared_with=[reply("a long one")])
    assert graded.reward == 1.0
