"""Checks of environments with a judge."""

from pathlib import Path

import pytest

from nemo_gym.contract.environment import open_environment
from nemo_gym.errors import ConfigError, LaunchError
from tests.contract.sums import broken_promises, change

pytestmark = pytest.mark.slow

JUDGED = """SHARED = []
from nemo_gym import BaseResourcesServerConfig
from nemo_gym.grading import JudgeConfig

class Judged(BaseResourcesServerConfig):
    judge: JudgeConfig
"""
JUDGE = """
judge_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${judge_base_url}
      openai_api_key: EMPTY
      openai_model: judge
"""


@pytest.fixture
def judged(folder):
    """The environment with a judge whose model is defined in a file outside the folder."""
    judge = "judge: {labels: [x], prompt: README.md, model_server: {type: responses_api_models, name: judge_model}}"
    change(folder / "configs/sums.yaml", "entrypoint: app.py}", f"entrypoint: app.py, {judge}}}")
    change(folder / "app.py", "SHARED = []", JUDGED)
    change(folder / "app.py", "Server(SimpleResourcesServer):", "Server(SimpleResourcesServer):\n    config: Judged\n")
    path = folder.parents[1] / "configs/judge_model.yaml"
    path.parent.mkdir()
    path.write_text(JUDGE, "utf-8")
    return folder


JUDGED_PATHS = "+config_paths=[resources_servers/sums/configs/sums.yaml,configs/judge_model.yaml]"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("jugde: {labels: [x]}", r"configs/sums\.yaml:4: sums.*\.judge: it is missing"),
        (
            "judge: {labels: [yes], %s}",
            r"configs/sums\.yaml:4: .*judge\.labels\.0: .* but is True; put it in quotes\.",
        ),
        ("judge: {labels: [x], max_concurency: 1, %s}", r"max_concurency: unknown setting\. Did you mean"),
        ("judge: {labels: [x], prompt: prompts/jugde.md, %s}", r"judge\.prompt: there is no file 'prompts/jugde\.md'"),
    ],
)
def test_invalid_server_settings_are_reported_with_line(folder, setting, message):
    model = "model_server: {type: responses_api_models, name: policy_model}"
    model += "" if "prompt:" in setting else ", prompt: README.md"
    change(
        folder / "configs/sums.yaml",
        "entrypoint: app.py}",
        "entrypoint: app.py, " + setting.replace("%s", model) + "}",
    )
    change(folder / "app.py", "SHARED = []", JUDGED)
    change(folder / "app.py", "Server(SimpleResourcesServer):", "Server(SimpleResourcesServer):\n    config: Judged\n")
    with pytest.raises(ConfigError, match=message), open_environment(folder):
        pass


def test_missing_judge_file_is_asked_for(judged):
    message = (
        r"sums\.yaml:4: .*\.judge\.model_server refers to 'judge_model', .*--config "
        r"resources_servers/sums/configs/sums\.yaml --config FILE"
    )
    with pytest.raises(ConfigError, match=message), open_environment(judged):
        pass


def test_judge_of_its_own_file_is_checked(judged):
    Path("env.yaml").write_text("judge_base_url: http://127.0.0.1:1/v1\n", "utf-8")
    model = "responses_api_models/openai_model/configs/openai_model.yaml"
    policy = ["+policy_base_url=http://127.0.0.1:1/v1", "+policy_api_key=EMPTY", "+policy_model_name=x"]
    assert broken_promises(judged, JUDGED_PATHS) == {}
    assert (
        broken_promises(judged, JUDGED_PATHS.replace("judge_model.yaml]", f"judge_model.yaml,{model}]"), *policy) == {}
    )


def test_given_values_reach_every_config(judged):
    change(judged / "configs/sums.yaml", "sums:\n", "config_paths: [configs/judge_model.yaml]\nsums:\n")
    other = (judged / "configs/sums.yaml").read_text("utf-8").replace("sums:\n", "sums2:\n", 1)
    other = other.replace("name: sums}", "name: sums2}").replace("sums_simple", "sums2_simple")
    (judged / "configs/other.yaml").write_text(other, "utf-8")
    words = ("+judge_base_url=http://127.0.0.1:1/v1", "++sums.resources_servers.sums.judge.max_concurrency=3")
    assert broken_promises(judged, *words) == {}


STRICT_JUDGE = """
judge_model:
  responses_api_models:
    strict_judge:
      entrypoint: app.py
      used_in_checks: USED
"""


STRICT_JUDGE_APP = """
from fastapi import FastAPI
from nemo_gym import SimpleResponsesAPIModel

class StrictJudge(SimpleResponsesAPIModel):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/score")(self.score)
        return app

    async def score(self, body: dict) -> dict:
        return {"scores": [0.5]}

    async def responses(self, body: dict) -> object:
        raise NotImplementedError

    async def chat_completions(self, body: dict) -> object:
        raise NotImplementedError
"""


SCORED = """    async def verify(self, body: VerifyRequest, state: Sum) -> float:
        from pydantic import BaseModel
        from nemo_gym.grading import call_judge

        class Scores(BaseModel):
            scores: list[float]

        reply = await call_judge(
            self.server_client, server_name="judge_model", url_path="/score", json={}, response_model=Scores
        )
        return reply.scores[0] * (state.total == body.wanted)
"""


def write_strict_judge(root: Path, used: str) -> Path:
    model = root / "responses_api_models/strict_judge/app.py"
    model.parent.mkdir(parents=True)
    model.write_text(STRICT_JUDGE_APP, "utf-8")
    (root / "configs/judge_model.yaml").write_text(STRICT_JUDGE.replace("USED", used), "utf-8")
    return model


def test_import_error_of_judge_is_reported_with_its_line(judged):
    model = write_strict_judge(judged.parents[1], "true")
    change(model, "class StrictJudge(", "class StrictJudge(Nothing.")
    with pytest.raises(
        LaunchError, match=r"strict_judge: cannot be imported\. app\.py:\d+: NameError: name 'Nothing'"
    ):
        broken_promises(judged, JUDGED_PATHS)


@pytest.mark.parametrize("used", ["true", "false"])
def test_judge_used_in_checks_is_called(judged, used):
    write_strict_judge(judged.parents[1], used)
    text = (judged / "app.py").read_text("utf-8")
    (judged / "app.py").write_text(text[: text.index("    async def verify")] + SCORED, "utf-8")
    broken = broken_promises(judged, JUDGED_PATHS)
    if used == "true":
        assert broken["the oracle earns the full reward"].startswith("row 1 earned 0.5 of 1")
        assert "odd answers are graded" not in broken
    else:
        assert "this test has no such server" in broken["the oracle earns the full reward"]
