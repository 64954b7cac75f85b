"""`ng eval health-check` against an endpoint with the faults that would spoil a whole run."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

pytestmark = pytest.mark.slow

COUNTER = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
PRICES = "models: {default: {input: 1000000, output: 2000000}}"


class Faulty(http.server.BaseHTTPRequestHandler):
    """An endpoint that answers in Chat Completions, with the fault of its class."""

    protocol_version = "HTTP/1.1"
    fault = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = self._answer(asked)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, asked):
        if self.fault == "key":
            return 401, {"error": {"message": "Incorrect API key provided"}}
        if self.fault == "context" and "long" in str(asked["messages"]):
            return 400, {
                "error": {"message": "maximum context length is 100 tokens", "code": "context_length_exceeded"}
            }
        if self.fault == "forced" and "tool_choice" in asked:
            return 400, {"error": {"message": f"tool_choice={asked['tool_choice']} is not supported"}}
        message = {"role": "assistant", "content": "OK"}
        names = [tool["function"]["name"] for tool in asked.get("tools", ())]
        if "report_number" in names and "tools" not in self.fault:
            arguments = "{7" if self.fault == "arguments" else '{"number": 7}'
            function = {"name": "report_number", "arguments": arguments}
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": function}]
        if "increment_counter" in names and self.fault == "own tools" and asked["messages"][-1]["role"] != "tool":
            function = {"name": "increment_counter", "arguments": '{"count": 1}'}
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": function}]
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {
            "id": "a",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [choice],
        }
        return 200, completion if self.fault == "usage" else {**completion, "usage": usage}

    def log_message(self, *_: object) -> None:
        """Disable request logging."""


@pytest.fixture(scope="module")
def endpoint():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def check(shared_workplace, endpoint):
    """Return a function that runs the command against the endpoint with a fault."""
    place = shared_workplace
    place.write("prices.yaml", PRICES)
    text = "Bring the counter to 3. " + "long " * 50
    rows = [
        {"responses_create_params": {"input": each}, "initial_count": 1, "expected_count": 3} for each in ("a", text)
    ]
    place.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def run(fault="", *words):
        Faulty.fault = fault
        return place.run(
            "ng", "eval", "health-check",
            f"+config_paths=[{COUNTER},responses_api_models/vllm_model/configs/vllm_model.yaml]",
            "+split=example", "+rows=2", "+num_repeats=10", "+num_samples_in_parallel=4", "+head_server.port=0",
            f"+policy_base_url={endpoint}", "+policy_api_key=wrong", "+policy_model_name=small",
            "++example_session_state_mgmt_simple_agent.responses_api_agents.simple_agent.datasets.0.jsonl_fpath="
            f"{place.folder / 'rows.jsonl'}", *words,
        )  # fmt: skip

    return run


def test_sound_endpoint_passes_with_a_forecast(check):
    finished = check("", "+prices=prices.yaml")
    assert finished.code == 0, finished.err
    assert "model 'small'" in finished.out
    assert 'called report_number({"number": 7})' in finished.out
    assert "rewards 0, 0; the slowest" in finished.out
    assert "forecast for 20 rollouts: about" in finished.out
    assert "200 input and 100 output tokens, 400 USD" in finished.out
    assert "token ids" not in finished.out


@pytest.mark.parametrize(
    ("fault", "messages"),
    [
        ("key", ["Check the API key", "no forecast, because no rollout was scored"]),
        ("context", ["the answer was cut off in 1 of 2 rollouts. Does the longest prompt fit"]),
        ("tools", ["answered in words instead of calling the tool", "--enable-auto-tool-choice"]),
        ("arguments", ["the arguments are not JSON"]),
    ],
)
def test_fault_is_reported_before_the_whole_run(check, fault, messages):
    finished = check(fault)
    assert finished.code == 1
    for message in messages:
        assert message in " ".join(finished.out.split())
    assert "checks failed" in finished.err
    assert "Traceback" not in finished.err


def test_tool_choice_of_the_rows_is_tried(check, shared_workplace):
    for choice, shown in (("required", "required"), ({"type": "function", "name": "a"}, "report_number")):
        params = {"input": "Bring the counter to 3.", "tool_choice": choice}
        row = {"responses_create_params": params, "initial_count": 1, "expected_count": 3}
        shared_workplace.write("forced.jsonl", json.dumps(row) + "\n")
        datasets = "example_session_state_mgmt_simple_agent.responses_api_agents.simple_agent.datasets"
        finished = check("forced", f"++{datasets}.0.jsonl_fpath={shared_workplace.folder / 'forced.jsonl'}")
        found = " ".join(finished.out.split())
        assert (finished.code, shown in found) == (1, True), found
        assert "--tool-call-parser" in found


def test_calls_of_the_environments_own_tools_count(check):
    finished = check("own tools")
    assert finished.code == 0, finished.out
    assert "called increment_counter (2 times) in its rollouts" in " ".join(finished.out.split())


def test_missing_price_is_reported(check, shared_workplace):
    shared_workplace.write("others.yaml", "models: {other: {input: 1, output: 1}}")
    finished = check("", "+prices=others.yaml")
    assert (finished.code, "no price for small" in finished.out, "USD" in finished.out) == (1, True, False)


def test_missing_token_ids_are_reported_if_wanted(check):
    finished = check("", "++policy_model.responses_api_models.vllm_model.return_token_id_information=true")
    assert finished.code == 1
    assert "return" in finished.out


def test_endpoint_without_usage_has_no_cost_forecast(check):
    finished = check("usage", "+prices=prices.yaml")
    assert finished.code == 0
    assert "the endpoint does not report tokens" in finished.out
