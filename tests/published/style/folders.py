"""The folders next to this file, in the form that commands accept."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / "environments"
NAMES = sorted(path.parent.name for path in ENVIRONMENTS.glob("resources_servers/*/configs"))
RESOURCES_SERVERS = [f"resources_servers/{name}" for name in NAMES]
AGENTS_AND_MODELS = HERE / "agents_and_models"
AGENTS_AND_MODEL_SERVERS = sorted(
    str(file.parent.relative_to(AGENTS_AND_MODELS)) for file in AGENTS_AND_MODELS.glob("*/*/app.py")
)
EPISODES = HERE / "episodes"
COLLECTED = HERE / "collected"
