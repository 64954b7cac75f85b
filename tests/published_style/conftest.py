"""The folders below are their authors', not ours: runners beside them copy them, serve them and run their tests."""

from __future__ import annotations

import shutil

import pytest

from tests.published_style.folders import AGENTS_AND_MODELS, ENVIRONMENTS
from tests.published_style.scripted_environments import MODELS, SCRIPTED_MODEL

collect_ignore_glob = ["*/resources_servers/*", "*/responses_api_agents/*", "*/responses_api_models/*"]
UNCOPIED = shutil.ignore_patterns("__pycache__", ".pytest_cache")


@pytest.fixture(scope="module")
def project(shared_workplace):
    """A folder with all of the environments copied into it, and a model."""
    shutil.copytree(ENVIRONMENTS, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    shared_workplace.write("responses_api_models/scripted_model/app.py", SCRIPTED_MODEL)
    shared_workplace.write("models.yaml", MODELS)
    return shared_workplace


@pytest.fixture(scope="module")
def place(shared_workplace):
    """The folders of agents and models where a user has copied them to."""
    shutil.copytree(AGENTS_AND_MODELS, shared_workplace.folder, dirs_exist_ok=True, ignore=UNCOPIED)
    return shared_workplace
