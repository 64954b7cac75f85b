"""`ng deploy render`: wrong input, and configs that contain secrets."""

from __future__ import annotations

import json
import string

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.config.models import Origin
from nemo_gym.config.reading import read_yaml
from nemo_gym.config.secret_values import PLACEHOLDERS
from nemo_gym.config.tree import node_of
from nemo_gym.errors import ConfigError
from nemo_gym.launcher.kubernetes.plan import check_no_secrets
from tests.launcher.kubernetes.cases import REPOSITORY, objects_of, of_kind, render

TIERS = ("resources_servers", "responses_api_agents", "responses_api_models")
MCQA = ("--resources-server", "mcqa", "--model-type", "openai_model")
ROWS = ("--input", "resources_servers/mcqa/data/example.jsonl")
BASE = {
    "config_paths": [
        "resources_servers/mcqa/configs/mcqa.yaml",
        "responses_api_models/openai_model/configs/openai_model.yaml",
    ]
}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--target", "helm"), 2, "target: it must be 'kubernetes', 'kuberay' or 'compose', but is 'helm'"),
        (
            ("--name", "My_Run"),
            2,
            "deployment: it must be at most 30 lowercase letters, digits and '-', first a letter",
        ),
        (("--namespace", "a.b"), 2, "namespace: it must be at most 63 lowercase letters"),
        (("--storage", "much"), 2, "storage: it must be a size such as 10Gi"),
        (("--target", "compose"), 2, "--target compose writes a Compose file and the config: add --output FOLDER."),
        (("--input", "tasks.jsonl"), 2, "--input tasks.jsonl: the file does not exist. A file in the volume"),
        (("--target", "kuberay", *ROWS), 2, "--input: a RayJob collects only datasets of the config, not a file."),
        (
            ("--split", "example"),
            2,
            "--split: not available with --target kubernetes. Name the rows with --input FILE.",
        ),
        (("+only=mcqa",), 2, "only: the manifest decides which container starts which server. Remove this setting."),
        (("+join=http://head:11000",), 2, "join: the manifest decides"),
        ((*ROWS, "+max_seconds=soon"), 2, "max_seconds: it must be a valid number"),
        (("+run_token=false",), 1, "run_token: false opens the run"),
        (
            ("+tls={cert: a.pem, key: b.pem}",),
            1,
            "tls: manifests do not give certificates to the containers. Remove tls",
        ),
        (("--model-api-key", "a-real-key"), 1, "policy_api_key is a secret, which everyone who sees the manifest"),
        (("--model-url", "http://gpu:80x/v1"), 1, "'http://gpu:80x/v1', which is not a valid URL (Port could"),
        (("--model-url", "http://[::1/v1"), 1, "'http://[::1/v1', which is not a valid URL (Invalid IPv6"),
        (("+policy_model.responses_api_models.openai_model.ray.num_gpus=0.5",), 1, "a container gets whole GPUs"),
        (("--output", "/proc/none/file"), 2, "--output /proc/none/file: "),
    ],
)  # fmt: skip
def test_wrong_input_is_explained(words, code, message):
    done = render(*MCQA, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    assert "a-real-key" not in done.stderr


def test_config_without_servers_is_rejected(tmp_path):
    (tmp_path / "empty.yaml").write_text("policy_model_name: none\n")
    done = render("--config", "empty.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "empty.yaml" in done.stderr


def test_large_input_belongs_in_the_volume(tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n' * 20_000)
    done = render(*MCQA, "--input", "tasks.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "write --input /results/tasks.jsonl" in done.stderr
    done = render(*MCQA, "--input", "/results/tasks.jsonl", cwd=tmp_path)
    (job,) = of_kind(objects_of(done.stdout), "Job").values()
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[words.index("--input") + 1] == "/results/tasks.jsonl"
    assert "rows.jsonl" not in done.stdout


def test_input_that_is_not_text_is_rejected(tmp_path):
    (tmp_path / "tasks.jsonl").write_bytes(b"\xff\xfe")
    done = render(*MCQA, "--input", "tasks.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "--input tasks.jsonl: the file cannot be read as UTF-8" in done.stderr


def test_header_stays_a_comment():
    done = render(*MCQA, "+note='first\n\nkind: Secret'")
    first, second, third = done.stdout.splitlines()[:3]
    assert first.startswith("# ng deploy render --resources-server mcqa")
    assert second.startswith("# Needs the Secret nemo-gym-secrets with run_token, env.yaml (which sets policy_api_key")
    assert third == "apiVersion: v1"


def test_notes_name_what_does_not_work_in_a_container(tmp_path):
    folder = tmp_path / "resources_servers" / "garden"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("")
    config = "garden: {resources_servers: {garden: {entrypoint: app.py, domain: other}}}\n"
    (tmp_path / "garden.yaml").write_text(config)
    local = ("--model-type", "openai_model", "--model-url", "http://127.0.0.1:8000/v1")
    done = render("--config", "garden.yaml", *local, cwd=tmp_path)
    assert done.returncode == 0
    assert "the image must contain the folder of garden" in done.stderr
    assert "policy_model: openai_base_url is http://127.0.0.1:8000/v1, which in a container is" in done.stderr


def test_names_of_servers_become_distinct_labels(tmp_path):
    agent = {"entrypoint": "app.py", "resources_server": {"type": "resources_servers", "name": "mcqa"},
             "model_server": {"type": "responses_api_models", "name": "policy_model"}}  # fmt: skip
    long = "an_agent_with_a_name_that_is_longer_than_any_label_may_be_in_a_cluster"
    names = ["Agent.one", "agent_one", "head", "collect", "default", long, f"{long}_2", "__"]
    servers = {name: {"responses_api_agents": {"simple_agent": agent}} for name in names}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(BASE | servers))
    done = render("--config", "run.yaml", "--name", "a" * 30, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    deployments = of_kind(objects_of(done.stdout), "Deployment")
    assert len(deployments) == len(names) + 4
    assert max(map(len, deployments)) <= 63
    started = [each["spec"]["template"]["spec"]["containers"][0]["args"][4] for each in deployments.values()]
    assert {*names} < {*started}


def test_other_agent_is_deployed_if_it_fits():
    done = render(*MCQA, "--agent-type", "harness_agent", *ROWS)
    assert (done.returncode, "nemo-gym-mcqa-harness-agent" in done.stdout) == (0, True), done.stderr
    assert "nemo-gym-mcqa-simple-agent" not in done.stdout
    done = render(*MCQA, "--agent-type", "aviary_agent", *ROWS)
    assert (done.returncode, done.stdout) == (1, "")
    assert "mcqa_aviary_agent: it plays with /seed_session and /step, but mcqa lacks /step." in done.stderr


SECRETS = st.text(string.ascii_letters + string.digits + "-_./+", min_size=8, max_size=40).filter(
    lambda text: text.lower() not in PLACEHOLDERS and not text.isdigit()
)
PLACES = [
    lambda secret: {"policy_api_key": secret},
    lambda secret: {"run_token": secret},
    lambda secret: {"hf_token": [secret, "EMPTY"]},
    lambda secret: {"policy_model": {"responses_api_models": {"openai_model": {"openai_api_key": secret}}}},
    lambda secret: {"extra_headers": {"authorization": f"Bearer {secret}"}},
    lambda secret: {"extra_headers": {"x-forwarded": f"Bearer {secret}"}},
    lambda secret: {"policy_api_key": f"${{oc.env:NO_SUCH_VARIABLE,{secret}}}"},
    lambda secret: {"policy_base_url": f"https://user:{secret.replace('/', 'x')}@example.com/v1"},
    lambda secret: {"note": f"sk-{secret.replace('.', 'x').replace('/', 'x').replace('+', 'x')}"},
]  # fmt: skip


@settings(max_examples=40)
@given(secret=SECRETS, place=st.sampled_from(PLACES))
def test_no_secret_is_ever_written(tmp_path_factory, secret, place):
    folder = tmp_path_factory.mktemp("secret")
    (folder / "run.yaml").write_text(json.dumps(BASE | place(secret)))
    done = render("--config", "run.yaml", *ROWS, cwd=folder)
    assert done.returncode == 1, secret
    assert "run.yaml:1: " in done.stderr
    assert done.stdout == ""
    assert secret not in done.stderr.replace(str(folder), "")


@pytest.mark.parametrize(
    "value", ["EMPTY", "dummy_key", "none", "", None, "${policy_api_key}", "${oc.env:KEY}", "${oc.env:KEY,EMPTY}",
              "Bearer ${key}", True],
)  # fmt: skip
def test_placeholders_and_references_are_no_secrets(value):
    check_no_secrets(node_of({"policy_api_key": value}, Origin("run.yaml", 1)))


def test_secret_is_reported_with_its_place():
    with pytest.raises(ConfigError, match=r"run.yaml:3: a.api_key is a secret.*env.yaml.*oc.env:NAME"):
        check_no_secrets(node_of({"a": {"api_key": "0123456789"}}, Origin("run.yaml", 3)))


def test_shipped_configs_contain_no_secrets():
    configs = [path for tier in TIERS for path in sorted((REPOSITORY / tier).glob("*/configs/*.yaml"))]
    assert len(configs) > 30
    for path in configs:
        check_no_secrets(read_yaml(path))
