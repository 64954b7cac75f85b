"""verifiers 0.4, without the package: the calls of its `NeMoGymTaskset`, made by hand, and a model server's chat.

tests/borders/test_verifiers_taskset.py has the package itself. Its managed mode installs the published package. Here,
a class of ours is started as that mode starts one: without a configuration.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, reply
from tests.frameworks.counting import SAMPLING, add
from tests.frameworks.engine import MODEL, decode, log_prob, script

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("verifiers_server.py")
REPOSITORY = SERVER.parents[2]
PATIENCE_S = 100.0
TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


@contextmanager
def started(server_class: str, folder: Path):
    """Start a server class in its own process and yield its address as soon as it answers."""
    port = folder / f"{server_class.replace(':', '.')}.port"
    with subprocess.Popen(
        [sys.executable, SERVER, server_class, port], cwd=folder, env={"PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield address(process, port)
        finally:
            process.kill()


def address(process, port):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            url = f"http://127.0.0.1:{int(port.read_text())}"
            httpx.get(url, verify=False)
            return url
        except (FileNotFoundError, ValueError, httpx.HTTPError):
            time.sleep(0.02)
    process.kill()
    raise AssertionError(f"the server did not start: {process.communicate()[1]}")


class Rollout:
    """The state that verifiers keeps of a rollout: the cookies of `/seed_session`, sent with each later request."""

    def __init__(self, url, row):
        self.url, self.row = url, row
        self.cookies: dict[str, str] = {}
        self.seed = self.post("seed_session", row)
        self.cookies.update(self.seed.cookies)

    def post(self, path, body):
        # Each request has a client of its own, and later cookies are ignored.
        with httpx.Client(cookies=self.cookies, verify=False) as client:
            return client.post(f"{self.url}/{path}", json=body)

    def verify(self, *items):
        """Return the reward and the other fields of the result, without the request that it repeats."""
        result = self.post("verify", self.row | {"response": response_of(*items)}).raise_for_status().json()
        reward = result.pop("reward")
        del result["responses_create_params"], result["response"]
        return reward, result


def response_of(*items):
    """Return a response with only the fields that verifiers sends."""
    names = ("id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools")
    response = reply(*items).model_dump(mode="json")
    return {name: response[name] for name in names} | {"status": "completed"}


def counter(url, start, goal):
    params = {"input": [{"role": "user", "content": "Count."}]}
    row = {"responses_create_params": params, "initial_count": start, "expected_count": goal}
    return Rollout(url, row)


def test_server_class_starts_and_keeps_sessions_apart(tmp_path):
    with started("resources_servers.example_session_state_mgmt.app:CounterServer", tmp_path) as url:
        one, other = counter(url, 1, 3), counter(url, 5, 5)
        assert one.seed.status_code == 200
        assert one.post("increment_counter", {"count": 2}).is_success
        assert one.post("get_counter_value", {}).json() == {"count": 3}
        assert other.post("get_counter_value", {}).json() == {"count": 5}
        assert not one.post("increment_counter", {"count": "many"}).is_success
        reward, fields = one.verify(call("increment_counter", count=2), "Done.")
        why = "the counter is at 3, and 3 is expected"
        assert (reward, fields) == (1.0, {"initial_count": 1, "expected_count": 3, "why": why})
        assert other.verify("Done.")[0] == 1.0
        assert not one.post("verify", {"response": response_of("Done.")}).is_success


@pytest.mark.slow
@pytest.mark.parametrize(
    "server_class",
    [
        "calendar.app:CalendarServer",
        "example_multi_step.app:MultiStepServer",
        "instruction_following.app:InstructionFollowingServer",
        "mcqa.app:McqaServer",
        "workplace_assistant.app:WorkplaceAssistantServer",
    ],
)
def test_server_classes_need_no_configuration(tmp_path, server_class):
    folder = REPOSITORY / "resources_servers" / server_class.partition(".")[0]
    with started(f"resources_servers.{server_class}", tmp_path) as url:
        rollout = Rollout(url, next(read_rows(folder / "data" / "example.jsonl")))
        assert rollout.seed.is_success
        reward, _ = rollout.verify("I do not know.")
        assert 0.0 <= reward < 1.0


@pytest.fixture(scope="module")
def policy(run):
    """Return the base URL of the policy's model server."""
    return f"{run.servers['policy_model']['url']}/v1"


def test_chat_completions_carry_tokens_both_ways(policy):
    messages = [{"role": "user", "content": script("Let me think.", add(1), "Done.")}]
    tools = [{"type": "function", "function": {"name": "increment_counter", "parameters": {"type": "object"}}}]
    seen: list[int] = []
    for said in ("Let me think.", '<call>increment_counter {"count": 1}</call>'):
        completion = complete(policy, messages, tools)
        message = completion["choices"][0]["message"]
        prompt, sampled, log_probs = (message[name] for name in TOKEN_FIELDS)
        assert prompt[: len(seen)] == seen
        assert decode(sampled) == said
        assert log_probs == [log_prob(token, len(prompt) + at) for at, token in enumerate(sampled)]
        seen = prompt + sampled
        messages += [message, {"role": "user", "content": "Go on."}]
    assert message["tool_calls"][0]["function"] == {"name": "increment_counter", "arguments": '{"count": 1}'}


def complete(policy, messages, tools):
    body = {"model": MODEL, "messages": messages, "tools": tools, **SAMPLING}
    with httpx.Client(verify=False) as client:
        return client.post(f"{policy}/chat/completions", json=body).raise_for_status().json()
