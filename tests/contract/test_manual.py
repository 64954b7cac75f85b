"""Test that the environment shown in docs/environments.md keeps all promises."""

import asyncio
import re
from pathlib import Path

import orjson
import pytest

from nemo_gym.config import load
from nemo_gym.contract import check_environment, open_environment
from nemo_gym.contract.environment import SAMPLE_MODEL
from nemo_gym.errors import ServerRefNotFoundError
from nemo_gym.jsonl import read_rows
from nemo_gym.launcher.folder_tests import run_tests

MANUAL = Path(__file__).parents[2] / "docs" / "environments.md"
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Chad": "N'Djamena", "Peru": "Lima"}


def shown(language: str, number: int = 0) -> str:
    """Return one of the page's code blocks in this language."""
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", MANUAL.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return blocks[number]


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
        "configs/short_answer.yaml": shown("yaml"),
        "prompts/judge.md": shown("markdown"),
        "oracle.py": "def solve(row):\n    return [row['expected_answer']]\n",
        "README.md": "The reward is what the judge says. Licence: our own.\n\n    ng_test +entrypoint=short_answer\n",
        "tests/test_app.py": shown("python", 1),
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


def test_tests_of_manual_pass(folder):
    tested = run_tests(folder)
    assert (tested.code, tested.passed) == (0, 1)


def test_row_of_manual_has_the_declared_fields(folder):
    (row, *_) = read_rows(folder / "data/example.jsonl")
    assert orjson.loads(shown("json")).keys() == row.keys()


def test_second_model_of_manual_can_judge(folder):
    judge = "++short_answer.resources_servers.short_answer.judge.model_server.name=judge_model"
    values = [f"+judge_{name}=http://localhost:1" for name in ("base_url", "api_key", "model_name")]
    model = folder.parents[1] / "judge_model.yaml"
    model.write_text(shown("yaml", 1), "utf-8")
    configs = [folder / "configs/short_answer.yaml", model, SAMPLE_MODEL]
    run = load(configs, [judge, *values], skip_dotenv=True, require_servers=True)
    assert {server.name for server in run.servers_of("responses_api_models")} == {"policy_model", "judge_model"}
    with pytest.raises(ServerRefNotFoundError, match="judge_model"):
        load([configs[0], configs[2]], [judge], skip_dotenv=True, require_servers=True)
