"""The page about published folders lists the names that they import and that do not exist here."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.each_case import each_case

PAGE = Path(__file__).parents[2] / "docs" / "contribute" / "published_folders.md"
ALL = "all"
NOT_HERE = {
    "anthropic_converter": ALL,
    "base_environment_server": ALL,
    "chat_streaming": ALL,
    "cli_setup_command": ALL,
    "dataset_orchestrator": ALL,
    "deliverables": ALL,
    "episode_types": "BaseEpisodeRequest BaseEpisodeResponse EpisodeFailure MaterializedTask",
    "failure_kinds": ALL,
    "gitlab_utils": ALL,
    "rollout_collection": "_build_trajectory_record",
    "rollout_health": ALL,
    "sandbox": """
        AsyncSandboxCompose SandboxPty SandboxPtyError SandboxPtySession SandboxPtySpec SupportsSandboxPty
        SupportsSandboxPtyAttach
    """,
    "sandbox.access": ALL,
    "sandbox.agent_tools": ALL,
    "sandbox.process_supervisor": ALL,
    "single_agent_turn_types": ALL,
    "task_data": ALL,
    "task_materialization": ALL,
    "telemetry": ALL,
    "testing.session_conformance": ALL,
    "vision_input": ALL,
}
"""The names of releases 0.5 and 0.7 that are missing, by module. When one is added, `IMPORTED` gets it."""


@each_case("module", NOT_HERE)
def test_missing_name_cannot_be_imported(module):
    if NOT_HERE[module] == ALL:
        with pytest.raises(ImportError):
            importlib.import_module(f"nemo_gym.{module}")
    else:
        there = importlib.import_module(f"nemo_gym.{module}")
        assert [name for name in NOT_HERE[module].split() if hasattr(there, name)] == []


def test_page_lists_exactly_the_missing_names():
    _, _, rest = PAGE.read_text("utf-8").partition("### Names that are not here")
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", rest.partition("\n## ")[0], re.MULTILINE)
    listed = {module: named for modules, named in rows for module in re.findall(r"`([^`]+)`", modules)}
    assert listed.keys() == NOT_HERE.keys()
    for module, named in listed.items():
        assert (named if named == ALL else " ".join(re.findall(r"`([^`]+)`", named))).split() == NOT_HERE[
            module
        ].split()
