"""Commands that end with a message because of Ray or of its settings, and the code that is copied to nodes."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from nemo_gym.config.loading import load
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.errors import LaunchError
from nemo_gym.launcher.ray.code import LARGEST_BYTES, Code, UnpackedCode
from tests.each_case import each_case

pytestmark = [pytest.mark.slow, pytest.mark.alone]

COMMAND = ("ng_run", "--resources-server", "mcqa", "--model-type", "sample_model", "--launcher", "ray")


@each_case(
    ("words", "env", "message"),
    [
        ((), {"RAY_ADDRESS": "ray://127.0.0.1:10001"}, "an address for Ray Client"),
        (("+ray_head_node_address=127.0.0.1:1",), {}, "cannot join a Ray cluster at 127.0.0.1:1: "),
        (("--only", "mcqa"), {}, "only and join are for machines without a cluster"),
    ],
)
def test_mistake_is_reported_in_one_paragraph(workplace, words, env, message):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'nemo-gym[ray]'")
    done = workplace.run(*COMMAND, *words, **env)
    assert done.code == 1
    assert message in done.err
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1


def test_missing_ray_is_reported_with_its_remedy(workplace):
    workplace.write("hiding/ray.py", "raise ImportError('as if it were not installed')\n")
    done = workplace.run(*COMMAND, PYTHONPATH=str(workplace.folder / "hiding"))
    assert (done.code, done.err) == (1, "Error: Ray is not installed here. Install it: pip install 'nemo-gym[ray]'\n")


def test_ray_that_does_not_start_is_reported_without_traceback(workplace):
    slow = "raise Exception('The current node timed out during startup.')"
    workplace.write("slow/ray.py", f"is_initialized = lambda: False\ndef init(**_): {slow}\n")
    done = workplace.run(*COMMAND, PYTHONPATH=str(workplace.folder / "slow"))
    assert done.code == 1
    assert done.err.startswith("Error: Ray did not start on this machine: The current node timed out during startup. ")
    assert done.err.count("\n") == 1


def test_lost_head_node_ends_the_run_before_ray_does(workplace):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'nemo-gym[ray]'")
    # With this setting, Ray's own code ends the process after 24 s without an explanation.
    command = workplace.start_servers(*COMMAND[1:], RAY_gcs_rpc_server_reconnect_timeout_s="24")
    (head,) = (each for each in psutil.Process(command.pid).children(recursive=True) if each.name() == "gcs_server")
    head.kill()
    finished = command.wait()
    assert finished.code == 1
    message = finished.err.splitlines()[-1]
    assert re.match(r"Error: Ray's head node at .* has not answered for 1\d s .* --resume\.$", message)
    assert workplace.left_over() == []


def test_unknown_need_is_reported_with_its_place(workplace):
    done = workplace.run(*COMMAND, "++mcqa.resources_servers.mcqa.ray.num_cpu=2")
    assert done.code == 1
    assert "mcqa.resources_servers.mcqa.ray.num_cpu: unknown setting" in done.err


@pytest.fixture
def project(workplace, monkeypatch) -> Path:
    """Return the root of a project with an environment, and make it the working folder."""
    workplace.environment("plain")
    workplace.write("env.yaml", "key: secret\n")
    workplace.write(".venv/pyvenv.cfg", "")
    workplace.write("results/rollouts.jsonl", "{}\n")
    workplace.write("resources_servers/plain/data/table.csv", "a,b\n")
    monkeypatch.chdir(workplace.folder)
    return workplace.folder


def loaded():
    return load(["resources_servers/plain/configs/plain.yaml"], [])


def test_code_is_unpacked_once_without_secrets_and_results(project, tmp_path):
    node = tmp_path / "node"
    code = Code.of(loaded())
    assert code.roots == (project,)
    unpacked = UnpackedCode(code.packed, code.roots, node)
    moved = unpacked.moved(project / "resources_servers/plain")
    assert moved.is_relative_to(node)
    files = {str(path.relative_to(unpacked.roots[0])) for path in unpacked.roots[0].rglob("*") if path.is_file()}
    folder = "resources_servers/plain"
    assert files == {f"{folder}/app.py", f"{folder}/configs/plain.yaml", f"{folder}/data/table.csv"}
    (moved / "app.py").write_text("changed")
    UnpackedCode(Code.of(loaded()).packed, code.roots, node)
    assert (moved / "app.py").read_text() == "changed"
    assert unpacked.moved(Path("/elsewhere")) == Path("/elsewhere")


def test_too_much_code_is_refused(project):
    with (project / "resources_servers/plain/data/large.bin").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(LaunchError, match="which is too much to copy to every node"):
        Code.of(loaded())
    assert Code.of(loaded().model_copy(update={"settings": RunSettings(ray_copies_code=False)})) is None
