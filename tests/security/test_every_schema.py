"""Requests that schemathesis generates from the servers' OpenAPI schemas never make a server fail."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent.parent
TIERS = ("resources_servers", "responses_api_agents", "responses_api_models")
SERVERS = [
    "head",
    *(
        f"{tier}/{folder.name}"
        for tier in TIERS
        for folder in sorted((REPOSITORY / tier).iterdir())
        if (folder / "app.py").exists()
    ),
]
EXAMPLES = 3
"""Examples per operation, few enough for this file to finish within a minute."""
ANSWERED_WITHIN_S = 120.0
"""Bounds a call that never ends; a busy machine may take long to import a grader's packages."""
JSON = {"content-type": "application/json"}
NOT_OURS = ("model_failed", "invalid_task")
"""Causes outside the server: the model and the row."""

SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def is_fine(status: int, body: str) -> bool:
    if status < 500:
        return True
    try:
        cause = json.loads(body).get("failure_class")
    except (ValueError, AttributeError):
        return False
    return cause in NOT_OURS


@pytest.mark.parametrize("server", SERVERS)
def test_no_generated_request_fails_a_server(server, address_of):
    url = address_of(server)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=ANSWERED_WITHIN_S)
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @SETTINGS
        @hypothesis.given(case=operation.as_strategy())
        def ask(case):
            nonlocal count
            count += 1
            answer = case.call(base_url=url, timeout=ANSWERED_WITHIN_S)
            assert is_fine(answer.status_code, answer.text), (case.as_curl_command()[:2000], answer.text[:2000])

        ask()
    assert count


def rows(name):
    lines = (REPOSITORY / "resources_servers" / name / "data" / "example.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.text(max_size=200) | st.sampled_from([
    "[" * 100_000, '{"a":' * 100_000, "\\boxed{" * 5_000, "<answer>" * 5_000, "9" * 10_000, "\x00", "1e999999",
])  # fmt: skip
PLAYED = ["mcqa", "math_with_judge", "structured_outputs", "instruction_following", "calendar", "text_to_sql",
          "example_tool_call_multireward", "workplace_assistant", "reasoning_gym", "counterintuitive",
          "long_context", "multiple_intents", "visual_reasoning", "audio_digits"]  # fmt: skip


@pytest.mark.parametrize("name", PLAYED)
def test_corrupted_row_is_graded_or_rejected(name, address_of):
    url = address_of(f"resources_servers/{name}")
    examples = rows(name)
    keys = sorted({key for row in examples for key in row} - {"responses_create_params"})

    with httpx.Client(base_url=url, timeout=ANSWERED_WITHIN_S, verify=False) as client:

        @hypothesis.settings(SETTINGS, max_examples=8)
        @hypothesis.given(st.sampled_from(examples), st.sampled_from([None, *keys]), ANYTHING, TEXTS, st.booleans())
        def grade(row, key, value, text, is_call):
            said = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
            called = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": text}
            response = {"id": "r", "created_at": 0, "model": "m", "object": "response",
                        "output": [called if is_call else said]}  # fmt: skip
            changed = row if key is None else {**row, key: value}
            for path in ("/seed_session", "/verify"):
                sent = json.dumps({**changed, "response": response})
                answer = client.post(path, content=sent, headers=JSON)
                assert is_fine(answer.status_code, answer.text), (key, value, text[:80], path, answer.text[:1500])

        grade()


TOOLS = ["workplace_assistant", "example_session_state_mgmt", "example_multi_step", "example_single_tool_call"]


@pytest.mark.parametrize("name", TOOLS)
def test_tool_accepts_or_rejects_any_arguments(name, address_of):
    url = address_of(f"resources_servers/{name}")
    with httpx.Client(base_url=url, timeout=ANSWERED_WITHIN_S, verify=False) as client:
        client.post("/seed_session", json=rows(name)[0])
        tools = client.get("/tools").json()
        names = {each["name"]: sorted(each["parameters"]["properties"]) for each in tools}

        @hypothesis.settings(SETTINGS, max_examples=40)
        @hypothesis.given(st.data())
        def use(data):
            tool = data.draw(st.sampled_from(sorted(names)))
            given = data.draw(ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(names[tool], ANYTHING)))
            answer = client.post(f"/{tool}", content=json.dumps(given))
            assert is_fine(answer.status_code, answer.text), (tool, given, answer.text[:1500])

        use()
