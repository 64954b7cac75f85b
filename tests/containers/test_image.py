"""The contents of the image, and the start and the end of its containers, on a real engine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import SECRET
from tests.containers.engine import REPOSITORY, Engine

pytestmark = pytest.mark.slow

MOST_BYTES = 350_000_000
CONFINED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
SERVERS = ("ng_run", "--resources-server=mcqa", "--model-type=sample_model")


@pytest.fixture
def in_image(engine: Engine, image: str):
    """Return a function that runs a command in a new container and returns its result."""
    return lambda *words, options=(): engine.podman("run", "--rm", *CONFINED, *options, image, *words)


@pytest.fixture
def container(engine: Engine) -> Iterator[str]:
    yield "ngc-servers"
    engine.podman("rm", "--force", "--ignore", "--time", "0", "ngc-servers")


def test_image_is_small_and_labelled(engine, image):
    assert int(engine.inspect(image, "{{.Size}}")) < MOST_BYTES
    assert engine.inspect(image, '{{index .Labels "org.opencontainers.image.version"}}') == "1.2.3"
    assert "healthy.py" in engine.inspect(image, "{{json .HealthCheck}}")


def test_unknown_extra_is_reported():
    words = [sys.executable, REPOSITORY / "containers" / "extras.py", "math,maths", "pip"]
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (ended.returncode, "'maths' is not an extra" in ended.stderr) == (1, True)
    assert "Traceback" not in ended.stderr


def test_commands_keep_their_exit_codes(in_image):
    version = in_image("ng", "version")
    assert version.stdout.startswith("nemo-gym "), version.stderr
    assert in_image("sh", "-c", "exit 7").returncode == 7
    assert in_image("sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert in_image("ng_run", "--resources-server=mcqq").returncode == 1
    unknown = in_image("no-such-command")
    assert (unknown.returncode, "no-such-command: No such file" in unknown.stderr) == (127, True)
    assert "Traceback" not in unknown.stderr


def test_commands_have_neither_rights_nor_tools(in_image):
    shown = in_image(
        "sh", "-c", "id -u; command -v pip pip3 cc gcc uv; touch /opt/x 2>&1; echo > results/x && echo written"
    )
    assert shown.stdout.split("\n")[0] == "10001"
    assert "Read-only file system" in shown.stdout
    assert shown.stdout.endswith("written\n")
    assert len(shown.stdout.splitlines()) == 3, shown.stdout


def test_first_process_reaps_orphans(in_image):
    # The shell ends before its grandchild, which the first process inherits.
    orphan = "sh -c '(exec timeout 0.2 sleep 60) &'; sleep 1"
    # Without a parent that reaps it, it stays in the list until the loop ends.
    wait = "n=0; while grep -qs '^Name:.timeout$' /proc/[0-9]*/status && [ $((n+=1)) -lt 600 ]; do sleep 0.1; done"
    count = f"{orphan}; {wait}; grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l"
    assert in_image("sh", "-c", count).stdout.strip() == "0"


def test_no_secret_is_in_the_image(engine, image):
    archive = engine.folder / "image.tar"
    engine.must("podman", "save", "--format", "docker-archive", "--output", str(archive), image)
    saved = archive.read_bytes()
    archive.unlink()
    # Layers are stored without compression, so that this finds the text of any file.
    assert b"org.opencontainers.image.title" in saved
    assert b"class SimpleResourcesServer" in saved
    assert SECRET.encode() not in saved
    assert SECRET not in engine.must("podman", "inspect", image)
    assert SECRET not in engine.must("podman", "history", "--no-trunc", image)


def test_servers_run_as_any_user_and_stop_in_order(engine, image, container):
    engine.must("podman", "run", "--detach", "--name", container, "--user", "4321:4321", *CONFINED, image, *SERVERS)
    engine.wait_for("healthy servers", lambda: engine.is_healthy(container), container)
    assert "3 of 3 servers answer" in engine.must("podman", "exec", container, "ng_status")
    engine.must("podman", "stop", "--time", "60", container)
    assert engine.inspect(container, "{{.State.ExitCode}}") == "0"


def test_container_without_servers_is_unhealthy(engine, image, container):
    engine.must("podman", "run", "--detach", "--name", container, image, "sleep", "600")
    check = engine.podman("healthcheck", "run", container)
    assert (check.returncode, check.stdout.strip()) == (1, "unhealthy")
    reason = engine.inspect(container, "{{json .State.Healthcheck.Log}}")
    assert "http://127.0.0.1:11000/livez" in reason
    assert "refused" in reason


def test_stopped_collection_is_resumed(engine, image, container, tmp_path: Path):
    results = tmp_path / "results"
    results.mkdir(mode=0o777)
    results.chmod(0o777)
    collect = ("ng", "eval", "run", *SERVERS[1:], "--split=example", "--output=results/x.jsonl", "--num-repeats=400")
    mounted = (*CONFINED, "--volume", f"{results}:/results", "--name", container, image, *collect)
    engine.must("podman", "run", "--detach", *mounted, "--concurrency=1")
    rollouts = results / "x.jsonl"
    engine.wait_for("first rollouts", lambda: rollouts.exists() and rollouts.stat().st_size > 0, container)
    engine.must("podman", "stop", "--time", "60", container)
    assert engine.inspect(container, "{{.State.ExitCode}}") == "130", engine.logs(container)
    before = len(rollouts.read_text().splitlines())
    assert 0 < before < 2_000
    engine.must("podman", "rm", container)
    resumed = engine.podman("run", *mounted, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert re.search(rf"^2000 planned = 2000 scored \([^)]*{before}[^)]*\) \+ 0 failed", resumed.stdout, re.MULTILINE)
