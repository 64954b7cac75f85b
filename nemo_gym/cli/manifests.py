"""The commands that check an environment's `manifest.yaml` or print it as JSON."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from nemo_gym import paths
from nemo_gym.cli import printing
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.selectors import environment_config
from nemo_gym.cli.settings import NamedSettings
from nemo_gym.config.loading import load
from nemo_gym.contract.manifest import MANIFEST_FILE, Manifest, read_manifest
from nemo_gym.errors import DataError, UsageError


class PublishSettings(NamedSettings):
    """Parameters of `ng env publish`."""

    as_json: bool = Field(default=True, alias="json")
    """Accepted but without effect, because the output is always JSON."""


def publish(words: list[str]) -> int:
    """Print an environment's manifest as JSON, without uploading it."""
    line = Options("ng env publish", PublishSettings, named_by="name", usual_selector="--environment").read(words)
    settings = settings_from(PublishSettings, load([], line.overrides, skip_dotenv=True).plain)
    if settings.name is None:
        raise UsageError("Name an environment, such as 'ng env publish mcqa'. 'ng list environments' lists them.")
    path = manifest_next_to(environment_config(settings.name, settings.kind))
    if not path.is_file():
        raise DataError(
            f"{path}: there is no manifest. Create this file to describe the environment; its keys are: "
            f"{', '.join(Manifest.model_fields)}."
        )
    manifest = read_manifest(path).model_dump(mode="json", exclude_unset=True)
    printing.say_json(manifest)
    return 0


def manifest_next_to(config_path: str) -> Path:
    """Return the path of the manifest in the folder of an environment's config."""
    relative = Path(config_path)
    folder = (paths.find(relative, Path.is_file) or relative).parent
    return (folder.parent if folder.name == "configs" else folder) / MANIFEST_FILE


def validate(words: list[str]) -> int:
    """Check a manifest: `ng env validate --manifest PATH`."""
    if len(words) != 1:
        raise UsageError(
            "ng env validate: --manifest takes the path of one manifest.yaml and no other arguments. --sync is not "
            "available: edit the manifest yourself. 'ng env check' checks that rewards are in the declared range."
        )
    manifest = read_manifest(Path(words[0]))
    printing.say(f"✓ {words[0]}: {manifest.name or 'without a name'}")
    return 0
