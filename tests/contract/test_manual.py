"""Test that the environment shown in docs/environments.md keeps all promises."""

import asyncio
import re
from pathlib import Path

import orjson
import pytest

from nemo_gym.contract import check_environment, open_environment

MANUAL = Path(__file__).parents[2] / "docs" / "environments.md"
AGENT = """
short_answer_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: short_answer}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: resources_servers/short_answer/data/example.jsonl}
"""
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Chad": "N'Djamena", "Peru": "Lima"}


def shown(language: str) -> str:
    """Return the page's only code block in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", MANUAL.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    questions = {f"What is the capital of {country}?": capital for country, capital in CAPITALS.items()}
    rows = [
        {"responses_create_params": {"input": question}, "question": question, "expected_answer": answer}
        for question, answer in questions.items()
    ]
    made = tmp_path / "resources_servers" / "short_answer"
    files = {
        "app.py": shown("python"),
        "configs/short_answer.yaml": shown("yaml") + AGENT,
        "prompts/judge.md": shown("markdown"),
        "oracle.py": "def solve(row):\n    return [row['expected_answer']]\n",
        "README.md": "The reward is what the judge says. Licence: our own.\n\n    ng_test +entrypoint=short_answer\n",
        "tests/test_app.py": "def test_nothing():\n    assert True\n",
        "data/example.jsonl": b"\n".join(map(orjson.dumps, rows)).decode(),
    }
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text, "utf-8")
    return made


def test_judged_environment_of_manual_keeps_promises(folder):
    with open_environment(folder) as environment:
        findings = asyncio.run(check_environment(environment))
    assert [finding for finding in findings if not finding.is_kept] == []
