"""A project folder with a few server folders, in which configurations are written and loaded."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import config
from nemo_gym.errors import ConfigError

FOLDERS = (
    "resources_servers/weather",
    "resources_servers/mcqa",
    "responses_api_agents/simple_agent",
    "responses_api_models/openai_model",
    "responses_api_models/vllm_model",
)


class Project:
    """Writes files and loads them as a user does, from the working folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
            (root / folder / "app.py").touch()

    def write(self, **files: str) -> None:
        """`name="a: 1"` writes `name.yaml`; the first line of a text in triple quotes is line 1."""
        for name, text in files.items():
            path = self.root / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))

    def load(self, *words: str, **options: Any) -> config.RunConfig:
        """Load with the words of a command line; `env.yaml` is read only where the project has one."""
        options.setdefault("skip_dotenv", not (self.root / "env.yaml").exists())
        return config.load((), words, **options)

    def load_text(self, text: str, *words: str, **options: Any) -> config.RunConfig:
        """Load one file, `main.yaml`, of this text."""
        self.write(main=text)
        return self.load("+config_paths=[main.yaml]", *words, **options)

    def refusal(self, error: type[ConfigError], text: str, *words: str, **options: Any) -> str:
        """The message with which loading `main.yaml` of this text is refused."""
        with pytest.raises(error) as refused:
            self.load_text(text, *words, **options)
        return str(refused.value)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    return Project(tmp_path)
