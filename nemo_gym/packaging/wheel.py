"""The wheel of an environment: its folders in one package, with a manifest and an entry point."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.contract.manifest import MANIFEST_FILE, Manifest, read_manifest
from nemo_gym.errors import DataError, LaunchError
from nemo_gym.launcher.environments import lines_for, run_installer
from nemo_gym.launcher.requirements import Requirements
from nemo_gym.packaging.installed import MANIFEST, PREFIX, PackedEnvironment, digests_of
from nemo_gym.plugins import ENVIRONMENTS
from nemo_gym.version import __version__

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.pyc", "tests", "env.yaml", "results", "cache")
"""Tests, caches, results, and files that may hold secrets."""
SPDX = re.compile(r"[\w.+()-]+( (AND|OR|WITH) [\w.+()-]+)*")


def described(folder: Path) -> PackedEnvironment:
    """Return the manifest of a folder's package, without its files.

    Raise `DataError` if the licence, the version or a requirement is missing or cannot be used.
    """
    path = folder / MANIFEST_FILE
    manifest = read_manifest(path) if path.is_file() else Manifest()
    version = str(manifest.version or "0.1.0")
    try:
        Version(version)
    except InvalidVersion as error:
        raise DataError(f"{path}: version: '{version}' is not a version. Write it like 1.0.0.") from error
    requirements = Requirements.of_folder(folder)
    for line in requirements.lines:
        try:
            Requirement(line)
        except InvalidRequirement as error:
            raise DataError(
                f"{folder}: its requirement '{line}' cannot be part of a wheel. Write it like name>=1.0."
            ) from error
    # nemo_gym itself is left out, because the package index has another package of this name.
    return PackedEnvironment(
        name=re.sub(r"\W", "_", ServerFolder.of(folder).implementation), version=version,
        license=_license(folder, manifest), nemo_gym=__version__, files={},
        requirements=lines_for(requirements, with_framework=False),
    )  # fmt: skip


def _license(folder: Path, manifest: Manifest) -> str:
    """Return the SPDX expression of the manifest, or else the name of the file with the licence."""
    given = manifest.licensing.get("code") if isinstance(manifest.licensing, dict) else manifest.licensing
    files = sorted(each.name for each in folder.glob("LICEN[CS]E*"))
    if given in (None, "unknown") and files:
        return files[0]
    if given in (None, "unknown"):
        advice = f"Add a file LICENSE, or a line such as 'licensing: Apache-2.0' to {MANIFEST_FILE}."
        raise DataError(f"{folder}: no licence. {advice}")
    if not SPDX.fullmatch(str(given)):
        place = f"{folder / MANIFEST_FILE}: licensing"
        raise DataError(f"{place}: '{given}' is not an SPDX expression. Write it like Apache-2.0.")
    return str(given)


def build_wheel(packed: PackedEnvironment, folders: Sequence[Path], output: Path) -> tuple[Path, PackedEnvironment]:
    """Build the wheel of server folders, of which the first is the environment. Return its path and its manifest."""
    if find_spec("hatchling") is None:
        raise LaunchError("ng env pack needs hatchling, which is not installed. Install it: pip install hatchling")
    module = f"{PREFIX}{packed.name}"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work, module)
        for folder in folders:
            own = ServerFolder.of(folder)
            shutil.copytree(folder, root / own.tier / own.implementation, ignore=LEFT_OUT)
        packed = packed.model_copy(update={"files": digests_of(root)})
        (root / MANIFEST).write_text(packed.model_dump_json(indent=2), "utf-8")
        is_file = (folders[0] / packed.license).is_file()
        if is_file:
            shutil.copy(folders[0] / packed.license, work)
        given = json.dumps([packed.license])
        # TOML reads strings and lists of JSON.
        lines = [
            "[build-system]", 'requires = ["hatchling"]', 'build-backend = "hatchling.build"', "[project]",
            f"name = {json.dumps(module.replace('_', '-'))}", f"version = {json.dumps(packed.version)}",
            f"description = {json.dumps(f'The environment {packed.name} for nemo_gym')}",
            f"license-files = {given}" if is_file else f"license = {given[1:-1]}",
            'requires-python = ">=3.11"', f"dependencies = {json.dumps(packed.requirements)}",
            f'[project.entry-points."{ENVIRONMENTS}"]', f"{packed.name} = {json.dumps(module)}",
            "[tool.hatch]", "metadata.allow-direct-references = true", f"build.only-include = {json.dumps([module])}",
        ]  # fmt: skip
        Path(work, "pyproject.toml").write_text("\n".join(lines), "utf-8")
        # Build here instead of in an isolated environment, which needs a network.
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output.resolve())]
        run_installer(command, Path(work))
    return output / f"{module}-{Version(packed.version)}-py3-none-any.whl", packed


def read_wheel(path: Path) -> PackedEnvironment:
    """Return the manifest of a wheel, if the wheel has its files and no others.

    Raise `ConfigError` if not, and `DataError` if the file is not the wheel of an environment.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            names = [each for each in wheel.namelist() if not each.endswith("/")]
            places = [each for each in names if re.fullmatch(f"{PREFIX}\\w+/{MANIFEST}", each)]
            if len(places) != 1:
                raise DataError(f"{path}: this is not the wheel of an environment. 'ng env pack' builds one.")
            packed = PackedEnvironment.parse(wheel.read(places[0]), f"{path}: {MANIFEST}")
            found = {
                name.removeprefix(f"{PREFIX}{packed.name}/"): hashlib.sha256(wheel.read(name)).hexdigest()
                for name in names
                if name not in places and not name.split("/")[0].endswith(".dist-info")
            }
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: cannot be read ({error}). Build it again with 'ng env pack'.") from error
    packed.check(found, str(path))
    return packed
