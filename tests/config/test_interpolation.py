"""Resolving `${…}`, and messages for unresolvable values."""

from __future__ import annotations

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.config.checks import check_variables
from nemo_gym.errors import ConfigInterpolationError

MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${policy_base_url}
      openai_api_key: ${policy_api_key}
"""


def server(settings: str) -> str:
    """Return a configuration with one server whose settings start at line 5."""
    lines = "".join(f"\n      {line}" for line in settings.splitlines())
    return f"weather:\n  resources_servers:\n    weather:\n      entrypoint: app.py{lines}\n"


def settings_of(project, settings, *words):
    return project.load_text(server(settings), *words).servers["weather"].settings


def test_values_come_from_keys_the_environment_and_defaults(project, monkeypatch):
    monkeypatch.setenv("A_CITY", "Oslo")
    monkeypatch.delenv("NO_SUCH_CITY", raising=False)
    settings = settings_of(
        project,
        "top: ${x.y}\ntext: a-${x.y}-b\nsibling: ${.top}\ncity: ${oc.env:A_CITY}\n"
        "elsewhere: ${oc.env:NO_SUCH_CITY,Rome}\nchosen: ${oc.select:nothing,7}\nblock: ${x}\nitems: ['${x.y}']",
        "+x.y=3",
    )
    assert settings == {
        "entrypoint": "app.py",
        "top": 3,
        "text": "a-3-b",
        "sibling": 3,
        "city": "Oslo",
        "elsewhere": "Rome",
        "chosen": 7,
        "block": {"y": 3},
        "items": [3],
    }


def test_raw_form_keeps_unresolvable_interpolations(project):
    run = project.load_text("a: ${nope}\nb: ${c}\nc: 1")
    assert run.raw["a"] == "${nope}"
    assert run.raw["b"] == "${c}"
    assert (run.plain["b"], "a" in run.plain) == (1, False)


@pytest.mark.skipif((PARENT_DIR / "env.yaml").exists(), reason="the repository's own env.yaml defines the keys")
def test_all_missing_env_yaml_keys_are_listed(project, tmp_path):
    message = project.refusal(ConfigInterpolationError, MODEL, skip_dotenv=False)
    block = "policy_model.responses_api_models.openai_model"
    assert f"main.yaml:5: {block}.openai_base_url refers to ${{policy_base_url}}, which is not defined." in message
    assert f"main.yaml:6: {block}.openai_api_key refers to ${{policy_api_key}}" in message
    assert f"env.yaml was not found (looked in {tmp_path}" in message
    assert "`policy_base_url: http://127.0.0.1:8000/v1` and `policy_api_key: EMPTY`" in message
    assert "--model-url VALUE --model-api-key VALUE" in message
    assert "Did you mean" not in message


def test_origin_of_a_reference_is_its_target(project):
    project.write(env="policy_base_url: http://x\npolicy_key: y\npolicy_api_key: ${policy_key}")
    origins = project.load_text(MODEL, skip_dotenv=False).servers["policy_model"].origins
    places = {key: str(origins[key]) for key in ("entrypoint", "openai_base_url", "openai_api_key")}
    assert places == {"entrypoint": "main.yaml:4", "openai_base_url": "env.yaml:1", "openai_api_key": "env.yaml:2"}


def test_env_yaml_without_the_key_gets_a_suggestion(project, tmp_path):
    project.write(env="policy_base_ulr: http://x\npolicy_api_key: y")
    message = project.refusal(ConfigInterpolationError, MODEL)
    assert "Did you mean 'policy_base_ulr'?" in message
    assert f"Add `policy_base_url: http://127.0.0.1:8000/v1` to {tmp_path / 'env.yaml'}" in message


def test_skipped_env_yaml_is_mentioned(project):
    assert "env.yaml was not read" in project.refusal(ConfigInterpolationError, MODEL, skip_dotenv=True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("x: ${sizes.smal}", "weather.x refers to ${sizes.smal}, which is not defined. Did you mean 'sizes.small'?"),
        ("x: ${.entrypont}", "refers to ${.entrypont}, which is not defined. Did you mean"),
        ("x: [1, '${nope.a}']", "weather.x.1 refers to ${nope.a}"),
        ("x: ${oc.env:NO_SUCH_VARIABLE}", "reads the environment variable NO_SUCH_VARIABLE, which is not set"),
        ("x: ${oc.evn:HOME}", "uses ${oc.evn:…}, which does not exist. Did you mean 'oc.env'?"),
        ("x: ${far}", "through far at main.yaml:6, refers to ${nearer}, which is not defined"),
        ("x: ${round}", "refers to itself: round -> about -> round"),
        ("x: 'if ${a'", "contains an invalid interpolation"),
        ("x: ${far_block}", "through far_block.inner at main.yaml:10, refers to ${nope}"),
    ],
)
def test_unresolvable_value_reports_location_and_reason(project, monkeypatch, settings, expected):
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    rest = "far: ${nearer}\nround: ${about}\nabout: ${round}\nfar_block:\n  inner: ${nope}\nsizes: {small: 1}\n"
    message = project.refusal(ConfigInterpolationError, server(settings) + rest)
    assert message.startswith("main.yaml:5: weather.resources_servers.weather.x")
    assert expected in message


LACKING = """
weather:
  resources_servers:
    weather: {entrypoint: app.py, key: "${oc.env:NO_SUCH_VARIABLE}", url: "http://${shared.host}/"}
shared: {host: "${oc.env:NO_SUCH_HOST}"}
"""


def test_unset_variable_is_needed_only_by_its_server(project, monkeypatch):
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    message = project.refusal(ConfigInterpolationError, LACKING)
    assert message.count("\n") == 1
    assert "weather.key reads the environment variable NO_SUCH_VARIABLE, which is not set" in message
    run = project.load_text(LACKING, needs_variables=False)
    weather = run.servers["weather"]
    assert (weather.settings["key"], weather.settings["url"]) == (None, None)
    with pytest.raises(ConfigInterpolationError) as refused:
        check_variables([weather])
    assert str(refused.value) == message
    monkeypatch.setenv("NO_SUCH_VARIABLE", "k")
    monkeypatch.setenv("NO_SUCH_HOST", "h")
    check_variables(project.load_text(LACKING, needs_variables=False).servers.values())


@pytest.mark.parametrize("setting", ["port: ${oc.env:NO_SUCH_VARIABLE}", "x: ${nope}"])
def test_other_unresolvable_values_are_always_errors(project, setting):
    project.refusal(ConfigInterpolationError, server(setting), needs_variables=False)


@pytest.mark.parametrize("key", ["run_token", "loopback_requires_token"])
def test_protecting_keys_must_be_resolvable(project, key):
    with pytest.raises(ConfigInterpolationError, match=f"{key} reads the environment variable NO_SUCH_VARIABLE"):
        project.load_text(f"{server('x: 1')}{key}: ${{oc.env:NO_SUCH_VARIABLE}}\n")


def test_unresolvable_override_names_the_interpolation(project):
    with pytest.raises(ConfigInterpolationError) as error:
        project.load_text(server("a: 1"), "+output_jsonl_fpath=${nothing}/o.jsonl")
    assert "nothing" in str(error.value)
    assert "output_jsonl_fpath" in str(error.value)
