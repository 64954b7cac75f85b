"""Malformed and deeply nested bodies on every route of every server never make the server fail."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

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
IN_MAKE_TEST = (
    "head",
    "resources_servers/example_session_state_mgmt",
    "resources_servers/aviary",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
)
"""One server of each kind: the servers of a tier share their middleware. `make test-all` covers the others."""
JSON = {"content-type": "application/json"}
EVERY_TYPE = (JSON, {}, {"content-type": "text/plain"})
EACH_SERVER = [pytest.param(server, marks=() if server in IN_MAKE_TEST else pytest.mark.slow) for server in SERVERS]
DEEP = 100_000
RESPONSE = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []}
ROW = {"responses_create_params": {"input": "hi"}, "response": RESPONSE}
HALF_AN_EMOJI = {
    **{"type": "message", "id": "m", "role": "assistant", "status": "completed"},
    "content": [{"type": "output_text", "text": "\ud83d", "annotations": []}],
}
BODIES = {
    "lists": b"[" * DEEP,
    "closed lists": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "within a row": json.dumps(ROW).encode()[:-1] + b', "more": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "within the input": b'{"responses_create_params": {"input": ' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "101 deep": b'{"more":' + b"[" * 100 + b"]" * 100 + b"}",
}
OTHERS = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "lone surrogates in a row": json.dumps(
        {**ROW, "response": {**RESPONSE, "output": [HALF_AN_EMOJI]}, "more": "\ud83d"}
    ).encode(),
    "a huge number": b'{"a": 1' + b"0" * 5000 + b"}",
    "not a number": b'{"responses_create_params": {"input": "x", "temperature": NaN}}',
    "a list": b"[]",
    "null": b"null",
    "99 deep in an extra field": json.dumps(ROW).encode()[:-1] + b', "more": ' + b"[" * 98 + b"]" * 98 + b"}",
}


def types_for(server):
    """Return headers with the content types to try."""
    return EVERY_TYPE if server in IN_MAKE_TEST else EVERY_TYPE[:1]


def posts(url):
    """Return the POST paths of the server's OpenAPI schema, and whether each reads a body."""
    schema = httpx.get(f"{url}/openapi.json", verify=False, timeout=100).json()
    return {path: "requestBody" in methods["post"] for path, methods in schema["paths"].items() if "post" in methods}


def send(url, path, body, headers=JSON, *, chunked=False):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=100)
    try:
        chunks = (body[start : start + 8192] for start in range(0, len(body), 8192)) if chunked else body
        connection.request("POST", path, chunks, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("server", EACH_SERVER)
def test_deeply_nested_body_is_rejected_on_every_route(server, address_of):
    url = address_of(server)
    for path, reads_body in posts(url).items():
        for what, body in BODIES.items():
            for headers in types_for(server):
                status, text = send(url, path, body, headers)
                is_refused = 400 <= status < 500 or (status == 200 and not reads_body)
                assert is_refused, (path, what, headers, status, text[:300])
    assert httpx.get(f"{url}/openapi.json", verify=False, timeout=100).status_code == 200


@pytest.mark.parametrize("server", EACH_SERVER)
def test_nested_body_with_input_header_does_no_damage(server, address_of):
    url = address_of(server)
    for path in posts(url):
        for what, body in BODIES.items():
            whole = b'{"input":' + body + b"}" if path.endswith("/v1/responses") else body
            status, text = send(url, path, whole, {**JSON, "x-nemo-gym-input-at": "9"})
            assert status, (path, what, text[:300])
    assert httpx.get(f"{url}/openapi.json", verify=False, timeout=100).status_code == 200


def test_huge_input_header_is_ignored(address_of):
    body = b'{"input":[{"role":"user","content":"hi"}]}'
    headers = {**JSON, "x-nemo-gym-input-at": "9" * 5000}
    status, text = send(address_of("responses_api_models/openai_model"), "/v1/responses", body, headers)
    assert status == 200, text[:300]


@pytest.mark.parametrize("server", EACH_SERVER)
def test_malformed_body_is_not_a_server_failure(server, address_of):
    url = address_of(server)
    for path in posts(url):
        for what, body in OTHERS.items():
            for headers in types_for(server):
                status, text = send(url, path, body, headers)
                assert status < 500, (path, what, status, text[:300])
    assert httpx.get(f"{url}/openapi.json", verify=False, timeout=100).status_code == 200
