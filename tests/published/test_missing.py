"""`python -m nemo_gym.published check` reports what a folder needs that does not exist here, without running it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.published.missing import missing_in
from tests.each_case import each_case
from tests.published.style.folders import EPISODES

APP = """\
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import nemo_gym.openai_utils
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    SimpleResourcesServer,
    {name},
)

if TYPE_CHECKING:
    from nemo_gym.deliverables import Parcel

try:
    from nemo_gym.telemetry import span
except ImportError:
    span = None

sys.exit("this code is run")
"""
CONFIG = """\
seats:
  resources_servers:
    seats:
      entrypoint: app.py
      domain: other
seats_agent:
  responses_api_agents:
    {agent}:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: seats}}
      model_server: {{type: responses_api_models, name: policy_model}}
      {setting}
"""


@pytest.fixture
def check(tmp_path):
    folder = tmp_path / "resources_servers" / "seats"

    def run(*words: str, name: str = "BaseVerifyRequest", **config: str) -> tuple[int, list[str]]:
        (folder / "configs").mkdir(parents=True, exist_ok=True)
        (folder / "app.py").write_text(APP.format(name=name))
        filled = {"agent": "simple_agent", "setting": "max_steps: 3", **config}
        (folder / "configs" / "seats.yaml").write_text(CONFIG.format(**filled))
        return checked(*(words or ["resources_servers/seats"]), cwd=tmp_path)

    return run


def checked(*words: str, cwd: Path) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "nemo_gym.published", "check", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_nothing_is_missing(check):
    assert check() == (0, ["resources_servers/seats: nothing is missing in 1 modules and 1 configs."])


def test_missing_name_has_its_file_and_line(check):
    place = "resources_servers/seats/app.py:10"
    assert check(name="Cushion") == (1, [f"{place}: nemo_gym.base_resources_server does not have Cushion here"])


@each_case(
    ("line", "problem"),
    [
        ("import nemo_gym.deliverables as parcels", "the module nemo_gym.deliverables does not exist here"),
        ("from nemo_gym.openai_utils.parts import Part", "the module nemo_gym.openai_utils.parts does not exist here"),
        ("from nemo_gym import Cushion", "nemo_gym does not have Cushion here"),
        ("try:\n    from nemo_gym import Cushion\nexcept KeyError:\n    pass", "nemo_gym does not have Cushion here"),
        (
            "def late():\n    from nemo_gym.errors import *\n    import nemo_gym.late",
            "nemo_gym.late does not exist here",
        ),
        ("def broken(:", "this is not valid Python"),
    ],
)
def test_each_kind_of_import_is_read(line, problem, tmp_path):
    (tmp_path / "tools.py").write_text(line)
    (said,) = missing_in(tmp_path)[0]
    assert (said.startswith(f"{tmp_path}/tools.py:"), problem in said) == (True, True)


def test_imports_of_other_packages_are_not_read(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "theirs.py").write_text("import nemo_gym.nowhere")
    (tmp_path / "tools.py").write_text("import nowhere\nfrom nemo_gym_extras import x\nfrom .nemo_gym import y")
    assert missing_in(tmp_path)[0] == []


@each_case(
    ("config", "problem"),
    [
        ({"setting": "max_steps: many"}, "seats.yaml:12: seats_agent.responses_api_agents.simple_agent.max_steps"),
        ({"agent": "carrier_agent"}, "there is no folder responses_api_agents/carrier_agent"),
        ({"setting": "num_workers: none"}, "num_workers"),
    ],
)
def test_refused_key_of_a_config_is_reported(config, problem, check):
    code, said = check(**config)
    assert (code, any(problem in line for line in said)) == (1, True), said


def test_value_from_another_file_is_not_missing(check):
    assert check(setting="max_steps: ${steps_of_the_run}")[0] == 0


def test_whole_collection_is_checked():
    code, said = checked(str(EPISODES), cwd=EPISODES)
    assert (code, len(said)) == (0, 1)


def test_absent_folder_is_a_usage_error(tmp_path):
    code, said = checked("nowhere", cwd=tmp_path)
    assert (code, "nowhere is not a folder" in said[-1]) == (2, True)
