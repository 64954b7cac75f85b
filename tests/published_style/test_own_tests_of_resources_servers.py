"""The tests that authors of resources servers in the published style have written pass."""

from __future__ import annotations

import pytest

from tests.published_style.folders import RESOURCES_SERVERS
from tests.published_style.own_tests import OwnTests

WITH_HTTPX_ALONE = [
    f"resources_servers/{name}"
    for name in ("any_tool", "event_hooks", "failed_rows", "marked_rollouts", "opened_library", "running_sum")
]
"""What `TestClient` is asked for: cookies, both ends of an app's life, errors, headers, any path."""


@pytest.fixture(scope="module")
def own_tests(project):
    return OwnTests(project, "-", RESOURCES_SERVERS)


@pytest.fixture(scope="module")
def own_tests_with_httpx_alone(project):
    return OwnTests(project, "httpx2", WITH_HTTPX_ALONE)


@pytest.mark.parametrize("folder", RESOURCES_SERVERS)
def test_the_folders_own_tests_pass(own_tests, folder):
    outcome = own_tests.outcomes[folder]
    assert outcome["code"] == 0, outcome["said"]


@pytest.mark.parametrize("folder", WITH_HTTPX_ALONE)
def test_the_folders_own_tests_pass_where_httpx_is_the_only_client(own_tests_with_httpx_alone, folder):
    outcome = own_tests_with_httpx_alone.outcomes[folder]
    assert outcome["code"] == 0, outcome["said"]


@pytest.mark.parametrize("name", ["any_tool", "packaged_env"])
def test_ng_test_finds_the_folders_own_modules(project, name):
    finished = project.run("ng_test", f"+entrypoint=resources_servers/{name}", timeout_s=60)
    assert finished.code == 0, finished.out + finished.err
