"""One vLLM for all tests of this folder, started by `local_vllm_model` with a tiny model that is made here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import Command, WarmCommands, Workplace
from tests.rows import rows_of

REPOSITORY = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("NEMO_GYM_ENGINE_PYTHON") or REPOSITORY / ".venv-engine/bin/python")
HAS_ENGINES = "import gguf, importlib.util as u; raise SystemExit(not all(map(u.find_spec, ('vllm', 'xllamacpp'))))"
LIMIT_S = 1500.0
"""An engine needs a minute to start, and most rollouts compute. Other tests can stretch both several times."""
CONTEXT = 2048
TOOLS = {
    name: {
        "type": "function",
        "name": name,
        "description": about,
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string", "enum": values}},
            "required": [key],
            "additionalProperties": False,
        },
    }
    for name, about, key, values in (
        ("turn", "Turn to a side.", "side", ["left", "right"]),
        ("read_map", "Read a page of the map.", "page", ["first", "last"]),
    )
}
ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    # Serve the routes for trainers, such as the one that aborts requests.
    "VLLM_SERVER_DEV_MODE": "1",
}  # fmt: skip
ARGS = {
    "enforce-eager": True,
    "dtype": "bfloat16",
    "max-num-seqs": 16,
    "max-model-len": CONTEXT,
    "enable-auto-tool-choice": True,
    "tool-call-parser": "hermes",
    # This parser is on for requests with `thinking` in their chat_template_kwargs.
    "reasoning-parser": "deepseek_v3",
    # Weights that know nothing would write spaces for ever.
    "structured-outputs-config": {"backend": "xgrammar", "disable_any_whitespace": True},
    "enable-log-requests": True,
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"plain": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "vllm": {"level": "INFO", "handlers": ["plain"], "propagate": False},
        # It logs the tokens of each prompt.
        "vllm.entrypoints.serve.utils.request_logger": {"level": "DEBUG"},
    },
}
RECEIVED = re.compile(r"prompt_token_ids: \[([\d, ]+)\]")
RUN_CONFIG = """
policy_model:
  responses_api_models:
    local_vllm_model:
      entrypoint: app.py
      python: {python}
      model: {model}
      served_model_name: tiny
      api_key: {key}
      args: {args}
      env: {env}
      sends_strict: true
      return_token_id_information: true
plain_model:
  responses_api_models:
    local_vllm_model_proxy:
      entrypoint: app.py
      model_server: {{type: responses_api_models, name: policy_model}}
      sends_strict: true
native_model:
  responses_api_models:
    local_vllm_model_proxy:
      entrypoint: app.py
      model_server: {{type: responses_api_models, name: policy_model}}
      uses_responses_api: true
prompt_model:
  responses_api_models:
    local_vllm_model_proxy:
      entrypoint: app.py
      model_server: {{type: responses_api_models, name: policy_model}}
      uses_completions_api: true
      return_token_id_information: true
      partial_rollouts: continue
rooms:
  resources_servers:
    rooms:
      entrypoint: app.py
      expose_tools_over_mcp: true
rooms_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: rooms}}
      model_server: {{type: responses_api_models, name: policy_model}}
      max_steps: 10
"""
PROGRAM = """
{dialect}_program:
  responses_api_agents:
    harness_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: rooms}}
      model_server: {{type: responses_api_models, name: policy_model}}
      command: [python3, talk.py, {dialect}]
      files: {{talk.py: {talk}}}
      token_id_capture: true
"""
KEY = "key-of-the-engine-1234"


@pytest.fixture(scope="session")
def python() -> Path:
    """Return the interpreter that has the engines."""
    if (
        PYTHON.is_file()
        and not subprocess.run([PYTHON, "-c", HAS_ENGINES], capture_output=True, check=False).returncode
    ):
        return PYTHON
    pytest.skip(f"{PYTHON} has no vLLM and llama.cpp: run `make engine`, or set NEMO_GYM_ENGINE_PYTHON")


@pytest.fixture(scope="session")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny model, with `tiny.gguf` for llama.cpp."""
    folder = tmp_path_factory.mktemp("model")
    words = [python, REPOSITORY / "examples/random_llama.py", folder, folder / "tiny.gguf"]
    made = subprocess.run(words, capture_output=True, text=True, env=os.environ | ENV, timeout=LIMIT_S, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    return folder


class Place(Workplace):
    """A workplace with the engine's config."""

    run_with_engine: Command

    @property
    def engine(self) -> dict[str, Any]:
        """Return the engine's address and key. A restart changes the address."""
        found: dict[str, Any] = httpx.get(f"{self.url_of('policy_model')}/get_inner_vllm_config", verify=False).json()
        return found

    def url_of(self, server: str) -> str:
        url: str = self.run_with_engine.servers[server]["url"]
        return url

    def ask_engine(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the engine's own reply to a POST request."""
        url = self.engine["base_url"][0].removesuffix("/v1") + path
        headers = {"authorization": f"Bearer {KEY}"}
        reply = httpx.post(url, json={"model": "tiny", **body}, headers=headers, timeout=LIMIT_S, verify=False)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of one of the engine's metrics."""
        text = httpx.get(self.engine["base_url"][0].removesuffix("/v1") + "/metrics", verify=False).text
        found = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
        (value,) = [line for line in found if all(f'{key}="{label}"' in line for key, label in labels.items())]
        return float(value.rpartition(" ")[2])

    def received(self) -> set[tuple[int, ...]]:
        """Return the prompts that the engine says it has received."""
        log = (self.folder / "results/engines/policy_model_0.log").read_text()
        return {tuple(map(int, found.split(","))) for found in RECEIVED.findall(log)}

    def engine_process(self) -> psutil.Process:
        """Return the engine's main process, which the model server's keeper has started."""
        server = psutil.Process(self.run_with_engine.servers["policy_model"]["pid"])
        (found,) = [
            each
            for each in server.children(recursive=True)
            if "vllm.entrypoints.openai.api_server" in each.cmdline() and "keeper.py" not in " ".join(each.cmdline())
        ]
        return found

    def collecting(self, name: str, agent: str, count: int, params: dict[str, Any], *words: str) -> Command:
        """Start to collect rollouts of equal rows."""
        row = {"responses_create_params": {"input": [{"role": "user", "content": "Find the door."}], **params}}
        self.write(f"{name}_rows.jsonl", f"{json.dumps(row)}\n" * count)
        port = self.run_with_engine.head.rpartition(":")[2]
        return self.start(
            "ng_collect_rollouts", f"+head_server.port={port}", f"+agent_name={agent}",
            f"+input_jsonl_fpath={name}_rows.jsonl", f"+output_jsonl_fpath={name}.jsonl", *words,
        )  # fmt: skip

    def collect(self, name: str, agent: str, count: int, params: dict[str, Any], *words: str) -> list[dict[str, Any]]:
        """Collect rollouts of equal rows, and return them."""
        finished = self.collecting(name, agent, count, params, *words).wait(LIMIT_S)
        assert finished.code == 0, finished.err
        return rows_of(self.folder / f"{name}.jsonl")


@pytest.fixture(scope="session")
def engine(
    python: Path, model: Path, warm_commands: WarmCommands, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Yield a workplace with an engine and servers."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "home").mkdir()
    (folder / "runtime").mkdir()
    place = Place(folder / "home", folder / "runtime", warm_commands)
    shutil.copytree(HERE / "rooms", place.folder / "resources_servers/rooms")
    env = ENV | {"VLLM_LOGGING_CONFIG_PATH": str(place.write("logging.json", json.dumps(LOGGING)))}
    programs = "".join(
        PROGRAM.format(dialect=each, talk=HERE / "rooms/talk.py") for each in ("chat", "messages", "responses")
    )
    written = RUN_CONFIG.format(python=python, model=model, key=KEY, args=json.dumps(ARGS), env=json.dumps(env))
    place.write("run.yaml", written + programs)
    place.run_with_engine = place.start(
        "ng_run", "+config_paths=[run.yaml]", "+head_server.port=0", "+run_token=false",
        f"+token_id_capture={{enabled: true, dir: {place.folder / 'tokens'}}}",
    )  # fmt: skip
    place.run_with_engine.wait_for("head server: ", LIMIT_S)
    yield place
    place.run_with_engine.end()
    assert place.left_over() == []
