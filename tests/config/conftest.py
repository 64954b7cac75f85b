"""Fixture: a project folder with server folders, to write and load configurations."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.errors import ConfigError

FOLDERS = (
    "resources_servers/weather",
    "resources_servers/mcqa",
    "responses_api_agents/simple_agent",
    "responses_api_models/openai_model",
    "responses_api_models/vllm_model",
)


class Project:
    """A folder whose files are loaded as a user does, from the working folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
            (root / folder / "app.py").touch()

    def write(self, **files: str) -> None:
        """Write `name.yaml` for each `name="a: 1"`; the first line of a triple-quoted text is line 1."""
        for name, text in files.items():
            path = self.root / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))

    def load(self, *words: str, **options: Any) -> RunConfig:
        """Load with command-line words; `env.yaml` is read only if the project has one."""
        options.setdefault("skip_dotenv", not (self.root / "env.yaml").exists())
        return load((), words, **options)

    def load_text(self, text: str, *words: str, **options: Any) -> RunConfig:
        """Load a single file, `main.yaml`, with this text."""
        self.write(main=text)
        return self.load("+config_paths=[main.yaml]", *words, **options)

    def refusal(self, error: type[ConfigError], text: str, *words: str, **options: Any) -> str:
        """Load `main.yaml` with this text and return the message of the expected error."""
        with pytest.raises(error) as refused:
            self.load_text(text, *words, **options)
        return str(refused.value)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    return Project(tmp_path)
