"""The services of compose.yaml, started by podman-compose in a network of their own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.containers.engine import REPOSITORY, Engine

pytestmark = pytest.mark.slow

PROJECT = "ngc-compose"
CONTAINERS = REPOSITORY / "containers"
TOKEN = "a-run-token-of-the-tests"
ENVIRONMENT = "example_session_state_mgmt"
REPEATS = 200
TASKS = 5
SERVERS = ("head", "resources", "model")
# Serves like vLLM on the port and under the model name that compose.vllm.yaml expects.
STAND_IN = """
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"data": [{"id": "policy"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "\\\\boxed{A}" if asked["model"] == "policy" else "who?"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.answer({"id": "1", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]})

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


class Project:
    """A compose project, with its variables."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.engine = engine
        secrets = engine.folder / "env.yaml"
        secrets.unlink(missing_ok=True)
        secrets.write_text(f"run_token: {TOKEN}\n")
        self.variables = {"NEMO_GYM_IMAGE": image, "GYM_SECRETS": str(secrets)}

    def compose(self, *words: str, files: tuple[str, ...] = ()) -> str:
        chosen = [word for file in (str(CONTAINERS / "compose.yaml"), *files) for word in ("-f", file)]
        return self.engine.must("podman-compose", "-p", PROJECT, *chosen, *words, **self.variables)

    def start(self, *services: str, files: tuple[str, ...] = ()) -> None:
        """Start services, and wait until they are healthy, because podman-compose does not."""
        self.compose("up", "--detach", "--no-build", *services, files=files)
        for name in (self.name_of(service) for service in services if service != "collector"):
            self.engine.wait_for(f"healthy {name}", lambda name=name: self.engine.is_healthy(name), name)

    def name_of(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def wait_for_end(self) -> str:
        """Wait until the collector has ended without an error, and return its output."""
        collector = self.name_of("collector")
        names = [self.name_of(service) for service in (*SERVERS, "collector")]
        ended = "exited 0"
        state = "{{.State.Status}} {{.State.ExitCode}}"
        self.engine.wait_for("end of the collection", lambda: self.engine.inspect(collector, state) == ended, *names)
        return self.engine.logs(collector)

    def results(self, command: str) -> str:
        """Run a shell command next to the results."""
        words = ("--volume", f"{PROJECT}_results:/results", self.variables["NEMO_GYM_IMAGE"], "sh", "-c", command)
        return self.engine.podman("run", "--rm", *words).stdout


@pytest.fixture
def project(engine: Engine, image: str) -> Iterator[Project]:
    made = Project(engine, image)
    yield made
    made.compose("down", "--volumes", "--timeout", "1")


def test_every_rollout_survives_a_killed_container(project):
    project.variables |= {
        "GYM_ENVIRONMENT": ENVIRONMENT,
        "GYM_INPUT": f"resources_servers/{ENVIRONMENT}/data/example.jsonl",
        "GYM_REPEATS": str(REPEATS),
        "GYM_CONCURRENCY": "2",
    }
    project.start(*SERVERS)
    for service in SERVERS:
        check_confinement(project.engine, project.name_of(service))
    project.start("collector")
    engine, killed = project.engine, project.name_of("resources")
    has_some = "test $(wc -l < results/rollouts.jsonl) -gt 20 && echo yes"
    engine.wait_for("first rollouts", lambda: project.results(has_some).strip() == "yes", project.name_of("collector"))
    # Killed from outside, like by the kernel. podman would not restart a container that it was asked to kill.
    os.kill(int(engine.inspect(killed, "{{.State.Pid}}")), signal.SIGKILL)
    output = project.wait_for_end()
    assert f"{TASKS * REPEATS} planned = {TASKS * REPEATS} scored + 0 failed + 0 unresolved" in output
    engine.wait_for("restart", lambda: int(engine.inspect(killed, "{{.RestartCount}}")) > 0, killed)
    # The calls for the lost sessions end at once, instead of going round in circles.
    assert "the rollout's time was over" not in engine.logs(killed)
    rows = [json.loads(line) for line in project.results("cat results/rollouts.jsonl").splitlines()]
    attempts = {(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}
    assert len(rows) == len(attempts) == TASKS * REPEATS
    assert project.results(f"grep -rlF {TOKEN} results; echo searched") == "searched\n"


def check_confinement(engine: Engine, name: str) -> None:
    """Check that a container has only the rights that it needs, and that its engine shows no secret."""
    described: dict[str, Any] = json.loads(engine.must("podman", "inspect", name))[0]
    assert described["HostConfig"]["ReadonlyRootfs"]
    assert described["EffectiveCaps"] in ([], None)
    assert "no-new-privileges" in json.dumps(described["HostConfig"]["SecurityOpt"])
    assert described["Config"]["User"] == "10001:10001"
    assert described["HostConfig"]["Memory"] == 2 * 2**30
    assert TOKEN not in json.dumps(described)


def test_vllm_variant_calls_the_engine(project):
    secrets = project.engine.folder / "env.yaml"
    secrets.chmod(0o600)
    os.chown(secrets, 4321, 4321)
    stand_in = project.engine.folder / "stand_in.py"
    stand_in.write_text(STAND_IN)
    changes = project.engine.folder / "stand_in.yaml"
    # It ignores the arguments of vLLM.
    service = {"entrypoint": ["python3", "/stand_in.py"], "volumes": [f"{stand_in}:/stand_in.py:ro"]}
    changes.write_text(yaml.safe_dump({"services": {"vllm": service}}))
    project.variables |= {
        "GYM_MODEL_TYPE": "vllm_model",
        "VLLM_MODEL": "any",
        "NEMO_GYM_USER": "4321:4321",
        "VLLM_IMAGE": project.variables["NEMO_GYM_IMAGE"],
    }
    files = (str(CONTAINERS / "compose.vllm.yaml"), str(changes))
    project.start("vllm", files=files)
    project.start(*SERVERS, files=files)
    project.start("collector", files=files)
    assert "20 planned = 20 scored + 0 failed + 0 unresolved" in project.wait_for_end()
    assert project.results("grep -c 'boxed{A}' results/rollouts.jsonl").strip() == "20"
    project.compose("down", "--volumes", "--timeout", "1", files=files)


def test_missing_vllm_weights_are_reported(project):
    files = (str(CONTAINERS / "compose.vllm.yaml"),)
    chosen = [word for file in (str(CONTAINERS / "compose.yaml"), *files) for word in ("-f", file)]
    ended = project.engine.run("podman-compose", "-p", PROJECT, *chosen, "up", "--detach", **project.variables)
    assert ended.returncode != 0
    assert "the name of the policy's weights" in ended.stdout + ended.stderr
