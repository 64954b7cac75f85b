"""The container engine and the image that the tests of this folder share."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import BUILD_S, REPOSITORY, Engine, engine_with_base

SECRET = "not-for-the-image-7f3a91c2"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    # Not below pytest's folder, which keeps the files of several runs.
    with engine_with_base(Path(tempfile.mkdtemp(prefix="ngc-"))) as made:
        yield made


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """Build the image from a copy of this checkout that has files with secrets, and return its name."""
    context = engine.folder / "context"
    _copy_checkout(context)
    for path in ("env.yaml", ".env", "resources_servers/mcqa/env.yaml", "resources_servers/mcqa/data/train.jsonl"):
        (context / path).write_text(f"policy_api_key: {SECRET}\n")
    settings = engine.folder / "pip.conf"
    settings.write_text(f"# {SECRET}\n{_pip_settings()}")
    words = ["buildah", "bud", "--isolation", "chroot", "--format", "docker", "--network", "host", "--layers=false"]
    words += ["--secret", f"id=pip.conf,src={settings}", "--build-arg", "BASE=localhost/ngc-base"]
    if CERTIFICATES.exists():
        words += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    words += ["--build-arg", "VERSION=1.2.3", "-f", str(context / "containers" / "Dockerfile"), "-t", "ngc-image"]
    engine.must(*words, str(context), timeout_s=BUILD_S)
    return "localhost/ngc-image"


def _copy_checkout(folder: Path) -> None:
    """Copy the files that git knows, with their changes."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, text=True
    )
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)


def _pip_settings() -> str:
    """Return this machine's access to its package index, which its environment variables set, as a pip.conf."""
    found = {key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.startswith("PIP_")}
    return "\n".join(["[global]", *(f"{key} = {value}" for key, value in found.items())])
