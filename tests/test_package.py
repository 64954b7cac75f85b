"""The wheel has everything that a user of the package needs, and no tests."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
TIERS = ("benchmarks", "resources_servers", "responses_api_agents", "responses_api_models")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_wheel_contains_all_shipped_files_except_tests(site: Path) -> None:
    listed = subprocess.run(["git", "ls-files", *TIERS], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    expected = {name for name in listed.stdout.splitlines() if name.split("/")[2:3] != ["tests"]}
    packed = {str(path.relative_to(site)) for tier in TIERS for path in (site / tier).rglob("*") if path.is_file()}
    # The task folders of `harbor` have tests of their own.
    assert {name for name in packed if name.split("/")[2:3] == ["tests"]} == set()
    assert expected - packed == set()
    assert any(name.endswith("/data/example.jsonl") for name in packed)


def test_installed_environment_runs_from_an_empty_folder(site: Path, tmp_path: Path) -> None:
    program = "import sys; from nemo_gym.cli.main import main; sys.exit(main(sys.argv[1:], 'ng'))"
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def ng(*words: str) -> str:
        command = [sys.executable, "-P", "-c", program, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    mcqa = ("--resources-server", "mcqa", "--model-type", "sample_model")
    ng("eval", "run", *mcqa, "--split", "example", "--output", "out.jsonl", "--head_server.port", "0")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5
    assert "promises kept" in ng("env", "check", "--resources-server", "mcqa")
