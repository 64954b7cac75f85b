"""The configuration as YAML, with and without its secrets."""

from __future__ import annotations

from omegaconf import OmegaConf

from nemo_gym.config.masking import is_secret_key, masked_yaml, raw_yaml
from tests.each_case import each_case

SECRETS = """
api_key apiKey OPENAI_API_KEY policy_api_key api_keys hf_token token wandb_token password db_passwd client_secret
Authorization secret_key private_key mlflow_tracking_token
"""
HARMLESS = """
max_tokens max_output_tokens tokens token_ids prompt_token_ids token_id_capture return_token_id_information tokenizer
eos_token key keys key_metrics monkey author num_workers
"""


@each_case("name", SECRETS.split())
def test_secret_keys_are_detected(name):
    assert is_secret_key(name)


@each_case("name", HARMLESS.split())
def test_similar_harmless_keys_are_not_secrets(name):
    assert not is_secret_key(name)


def test_secrets_are_masked_by_key_and_by_shape(project, monkeypatch):
    monkeypatch.setenv("MY_KEY", "value-of-the-environment")
    run = project.load_text(
        """
        s:
          resources_servers:
            weather:
              entrypoint: app.py
              api_key: ${oc.env:MY_KEY}
              other_key: ${oc.env:MY_KEY}
              fallback_api_key: ${oc.env:NO_KEY,hidden-1}
              password: 1234
              headers: {Authorization: Bearer hidden-2, Accept: text}
              words: [sk-hidden3, nvapi-hidden4, hf_hidden5, ghp_hidden6, "curl -H 'Bearer hidden-7'"]
              url: http://user:hidden-8@host/v1
              api_keys: [hidden-9]
              max_tokens: 5
              token_ids: [1, 2]
              hf_token: null
              desk-size: risk-free
        """
    )
    text = masked_yaml(run)
    assert "hidden" not in text
    assert "1234" not in text
    assert "value-of-the-environment" not in text
    shown = OmegaConf.to_container(OmegaConf.create(text))["s"]["resources_servers"]["weather"]
    assert shown["api_key"] == shown["other_key"] == "${oc.env:MY_KEY}"
    assert (shown["max_tokens"], shown["token_ids"], shown["hf_token"]) == (5, [1, 2], None)
    assert (shown["password"], shown["api_keys"], shown["headers"]["Accept"]) == ("****", ["****"], "text")
    assert (shown["desk-size"], shown["url"]) == ("risk-free", "http://****@host/v1")


def test_raw_yaml_round_trips(project):
    run = project.load_text("a: {b: '${c}', d: '1e-3', e: 1e-3, f: [x, null, true]}\nc: sk-12345678")
    assert OmegaConf.to_container(OmegaConf.create(raw_yaml(run))) == run.raw
    assert "sk-12345678" in raw_yaml(run)
