"""Tests that a run whose policy judges its own answers is recognised."""

import pytest

from nemo_gym.config.loading import load
from nemo_gym.config.self_judged import self_judged

MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
RUBRIC = """
graded:
  resources_servers:
    rubric_judge:
      entrypoint: app.py
      judge:
        model_server: {type: responses_api_models, name: JUDGE}
graded_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: graded}
      model_server: {type: responses_api_models, name: policy_model}
"""
OTHER = """
other_model:
  responses_api_models: {openai_model: {entrypoint: app.py, openai_base_url: x, openai_api_key: x, openai_model: x}}
"""


@pytest.mark.parametrize(
    ("configs", "advice"),
    [
        (["benchmarks/simpleqa/config.yaml"], "--benchmark simpleqa/judge."),
        (["benchmarks/simpleqa/judge.yaml"], None),
        (["policy_model"], "name another model server in its config."),
        (["other_model"], None),
        (["benchmarks/gsm8k/config.yaml"], None),
    ],
)
def test_policy_that_judges_itself_is_named(tmp_path, configs, advice):
    if not configs[0].endswith(".yaml"):
        path = tmp_path / "graded.yaml"
        path.write_text(RUBRIC.replace("JUDGE", configs[0]) + OTHER, "utf-8")
        configs = [str(path)]
    judge = [f"+judge_{key}=x" for key in ("base_url", "api_key", "model_name")] if "judge" in configs[0] else []
    found = list(self_judged(load([*configs, MODEL], judge, skip_dotenv=True)))
    assert [advice in line for line in found] == ([True] if advice else [])
