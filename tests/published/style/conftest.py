"""Fixtures for server folders in the style of the published package, used as if other authors had written them."""

from __future__ import annotations

import shutil

import pytest

from tests.published.style.folders import AGENTS_AND_MODELS, ENVIRONMENTS
from tests.published.style.scripted_environments import MODELS, SCRIPTED_MODEL

collect_ignore_glob = ["*/resources_servers/*", "*/responses_api_agents/*", "*/responses_api_models/*"]
UNCOPIED = shutil.ignore_patterns("__pycache__", ".pytest_cache")


@pytest.fixture(scope="module")
def project(shared_workplace):
    """Return a workplace with copies of all environments and a scripted model."""
    shutil.copytree(ENVIRONMENTS, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    shared_workplace.write("responses_api_models/scripted_model/app.py", SCRIPTED_MODEL)
    shared_workplace.write("models.yaml", MODELS)
    return shared_workplace


@pytest.fixture(scope="module")
def place(shared_workplace):
    """Return a workplace with copies of all agent and model folders."""
    shutil.copytree(AGENTS_AND_MODELS, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    return shared_workplace
