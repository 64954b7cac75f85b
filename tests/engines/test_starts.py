"""A real vLLM that cannot start: one paragraph each, with its error."""

from __future__ import annotations

import json
import socket

import pytest

from tests.engines.conftest import ENV, LIMIT_S

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(4 * LIMIT_S)]

CONFIG = """
policy_model:
  responses_api_models:
    local_vllm_model:
      entrypoint: app.py
      env: {env}
      max_restarts: 0
      {settings}
"""


@pytest.fixture
def refusal(workplace):
    """Return a function that starts an engine with wrong settings, and returns the command's message."""

    def started(settings):
        lines = "\n      ".join(f"{key}: {json.dumps(value)}" for key, value in settings.items())
        workplace.write("run.yaml", CONFIG.format(env=json.dumps(ENV), settings=lines))
        finished = workplace.run("ng_run", "+config_paths=[run.yaml]", "+head_server.port=0", timeout_s=LIMIT_S)
        errors = [line for line in finished.err.splitlines() if not line.startswith("waiting for ")]
        assert finished.code == 1
        (error,) = errors
        assert "Traceback" not in finished.out
        assert workplace.left_over() == []
        return error

    return started


def test_engine_that_cannot_start_is_reported_in_one_line(refusal, python, model):
    own = {"python": str(python), "model": str(model)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--port", str(port)]
        for settings, message in (
            ({**own, "args": {"no-such-option": 1}}, "error: unrecognized arguments: --no-such-option"),
            ({**own, "args": {"max-model-len": 10**6}}, "User-specified max_model_len (1000000) is greater than"),
            ({**own, "model": "no/such-model"}, "outgoing traffic has been disabled"),
            ({**own, "model": "/no/such-model"}, "model '/no/such-model' not found"),
            ({**own, "python": "/usr/bin/env"}, "ended with exit code "),
            ({"model": str(model), "command": words}, "[Errno 98] Address already in use"),
        ):
            error = refusal(settings)
            assert error.startswith("Error: "), error
            assert message in error, error
