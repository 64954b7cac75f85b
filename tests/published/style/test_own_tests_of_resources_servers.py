"""The own tests of resources servers in the published style pass."""

from __future__ import annotations

import pytest

from tests.published.style.folders import RESOURCES_SERVERS
from tests.published.style.own_tests import OwnTests

pytestmark = pytest.mark.slow

WITH_HTTPX_ALONE = [
    f"resources_servers/{name}"
    for name in ("any_tool", "event_hooks", "failed_rows", "marked_rollouts", "opened_library", "running_sum")
]
"""Folders that together use every part of `TestClient`: cookies, lifespan, errors, headers, any path."""


@pytest.fixture(scope="module")
def own_tests(project):
    return OwnTests(project, "-", RESOURCES_SERVERS)


@pytest.fixture(scope="module")
def own_tests_with_httpx_alone(project):
    return OwnTests(project, "httpx2", WITH_HTTPX_ALONE)


@pytest.mark.parametrize("folder", RESOURCES_SERVERS)
def test_own_tests_pass(own_tests, folder):
    outcome = own_tests.outcomes[folder]
    assert outcome["code"] == 0, outcome["output"]


@pytest.mark.parametrize("folder", WITH_HTTPX_ALONE)
def test_own_tests_pass_with_httpx_alone(own_tests_with_httpx_alone, folder):
    outcome = own_tests_with_httpx_alone.outcomes[folder]
    assert outcome["code"] == 0, outcome["output"]


@pytest.mark.parametrize("name", ["any_tool", "packaged_env"])
def test_ng_test_finds_modules_of_the_folder(project, name):
    finished = project.run("ng_test", f"+entrypoint=resources_servers/{name}")
    assert finished.code == 0, finished.out + finished.err
