"""Calls to an external model endpoint, which runs in another process."""

import asyncio
import math
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from pydantic import Field

from nemo_gym.errors import EndpointError
from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI
from nemo_gym.http.external import external_session
from nemo_gym.http.model_replies import as_written
from nemo_gym.http.reply import MAX_BODY_BYTES
from nemo_gym.http.retries import Backoff, pause_asked_for_s, seconds_of_retry_after
from tests.each_case import each_case

ENDPOINT = Path(__file__).parents[1] / "endpoint" / "server.py"
KEY = "sk-very-secret-1234"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def client(endpoint):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY)
    yield client
    await client.aclose()


async def test_every_call_reaches_its_route(client, seen):
    assert (await client.create_models())["data"][0]["id"] == "echo"
    completion = await client.create_chat_completion(model="echo", messages=HELLO)
    assert completion["choices"][0]["message"]["content"] == "echo: Hello"
    assert (await client.create_response(model="echo", input="Hello"))["id"] == "resp_1"
    assert (await client.create_tokenize(model="echo", messages=HELLO))["tokens"] == [72, 101, 108, 108, 111]
    assert [request["path"] for request in seen()] == [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/responses",
        "/tokenize",
    ]
    assert {request["headers"]["authorization"] for request in seen()} == {f"Bearer {KEY}"}


async def test_default_headers_are_sent(endpoint, seen):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1/", api_key=KEY, default_headers={"X-Team": "blue"})
    await client.create_models()
    await client.aclose()
    [request] = seen()
    assert (request["path"], request["headers"]["x-team"]) == ("/v1/models", "blue")


async def test_key_header_and_query_are_configurable(endpoint, seen):
    client = NeMoGymAsyncOpenAI(
        base_url=f"{endpoint}/v1", api_key=KEY, key_header="api-key", default_query={"api-version": "2024-10-21"}
    )
    await client.create_chat_completion(model="echo", messages=HELLO)
    await client.ask("responses", {"model": "echo"}, b"[]")
    await client.aclose()
    for request in seen():
        assert (request["query"], request["headers"]["api-key"]) == ("api-version=2024-10-21", KEY)
        assert "authorization" not in request["headers"]


async def test_case_of_the_key_header_does_not_matter(endpoint, seen):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY, key_header="authorization")
    await client.create_models()
    await client.aclose()
    [request] = seen()
    assert request["headers"]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 504, 529, 598])
async def test_temporary_failure_is_retried(client, seen, status):
    answer = await client.create_chat_completion(model=f"flaky:{status}:2:passes", messages=HELLO)
    assert answer["choices"]
    assert len(seen()) == 3


async def test_permanent_failure_reports_the_number_of_tries(client, seen):
    with pytest.raises(EndpointError) as caught:
        await client.create_chat_completion(model="flaky:503:99:stays", messages=HELLO)
    assert caught.value.status == 503
    assert re.fullmatch(
        r"POST http://127\.0\.0\.1:\d+/v1/chat/completions answered 503: .*Come back later\..* \(tried 3 times\)",
        str(caught.value),
    )
    assert len(seen()) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 422, 501])
async def test_other_statuses_are_not_retried(client, seen, status):
    with pytest.raises(EndpointError, match=f"answered {status}: .*This is always {status}") as caught:
        await client.create_chat_completion(model=f"status:{status}", messages=HELLO)
    assert caught.value.status == status
    assert "tried" not in str(caught.value)
    assert len(seen()) == 1


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("status:401", "Check the API key."),
        (
            "status:404",
            "it must end with /v1, or with the path that the endpoint uses instead. Check the model's name, too.",
        ),
        (
            "not-json",
            "Check the endpoint's address: it must end with /v1, or with the path that the endpoint uses instead.",
        ),
    ],
)
async def test_error_advises_the_user(client, model, advice):
    with pytest.raises(EndpointError) as caught:
        await client.create_chat_completion(model=model, messages=HELLO)
    assert str(caught.value).endswith(advice)


async def test_failures_of_our_own_servers_are_not_retried(endpoint, seen):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY, internal=True)
    with pytest.raises(EndpointError, match="answered 502"):
        await client.create_chat_completion(model="status:502", messages=HELLO)
    await client.aclose()
    assert len(seen()) == 1


@pytest.mark.parametrize("model", ["not-json", "hang-up"])
async def test_unusable_replies_are_not_retried(client, seen, model):
    with pytest.raises(EndpointError, match=r"not a JSON object: <html>|lost the connection"):
        await client.create_chat_completion(model=model, messages=HELLO)
    assert len(seen()) == 1


def test_text_with_malformed_tokens_is_not_passed_on():
    numbers = ", ".join(["1"] * 300)
    assert as_written(f'{{"prompt_token_ids": [{numbers}]}}'.encode()) is not None
    assert as_written(f'{{"prompt_token_ids": [{numbers},, 2]}}'.encode()) is None
    assert as_written(f'{{"generation_log_probs": [{numbers}, 1-2]}}'.encode()) is None


async def test_slow_endpoint_times_out(endpoint, seen):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY, timeout_s=0.2)
    with pytest.raises(EndpointError, match=r"(did not answer within|sent nothing for) 0\.2 s$"):
        await client.create_chat_completion(model="slow:5", messages=HELLO)
    await client.aclose()
    assert len(seen()) == 1


async def test_refused_connection_is_retried_and_reported():
    # The bound socket keeps the port from other programs.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        client = NeMoGymAsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, tries=2)
        with pytest.raises(EndpointError, match=r"could not connect: .* \(tried 2 times\)$") as caught:
            await client.create_models()
        await client.aclose()
    assert not caught.value.was_sent
    assert caught.value.status is None


async def test_endpoint_that_starts_late_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = NeMoGymAsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, tries=20)
    call = asyncio.create_task(client.create_models())
    await asyncio.sleep(0.1)
    late = await asyncio.create_subprocess_exec(
        sys.executable, ENDPOINT, "--port", str(port), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert (await call)["data"]
    late.stdin.close()
    await late.wait()
    await client.aclose()


async def test_key_quoted_by_the_endpoint_is_redacted(client):
    with pytest.raises(EndpointError) as caught:
        await client.create_chat_completion(model="tells-key", messages=HELLO)
    assert "Incorrect API key provided: [redacted]." in str(caught.value)
    assert KEY not in caught.value.body
    assert KEY not in repr(client)


async def test_malformed_key_is_not_quoted(endpoint):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=f"{KEY}\n")
    with pytest.raises(EndpointError, match="malformed") as caught:
        await client.create_models()
    await client.aclose()
    assert KEY not in str(caught.value)


async def test_login_in_the_address_is_not_quoted():
    client = NeMoGymAsyncOpenAI(base_url="http://user:hunter22@127.0.0.1:1/v1", api_key=KEY, tries=1)
    with pytest.raises(EndpointError) as caught:
        await client.create_models()
    await client.aclose()
    assert "hunter22" not in str(caught.value)


@pytest.mark.slow
async def test_a_thousand_calls_run_concurrently(client):
    started = time.monotonic()
    answers = await asyncio.gather(
        *(client.create_chat_completion(model="slow:10", messages=HELLO) for _ in range(1000))
    )
    assert len(answers) == 1000
    # A pool of 100 connections, a common limit, would take at least 100 s.
    assert time.monotonic() - started < 100


async def test_connection_is_reused_only_while_surely_open(client, seen):
    await client.create_models()
    await client.create_models()
    await asyncio.sleep(4.2)
    await client.create_models()
    first, second, third = (request["client"] for request in seen())
    assert first == second != third


async def test_cookies_are_not_kept(endpoint, seen):
    # By name, because many cookie jars ignore cookies of IP addresses, so the test would pass.
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint.replace('127.0.0.1', 'localhost')}/v1", api_key=KEY)
    await client.create_models()
    await client.create_models()
    await client.aclose()
    assert ["cookie" in request["headers"] for request in seen()] == [False, False]


async def test_connections_close_with_the_last_client(endpoint):
    one = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY)
    other = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY)
    await one.create_models()
    await other.create_models()
    await one.aclose()
    assert external_session().is_open
    await other.aclose()
    assert not external_session().is_open
    assert (await one.create_models())["data"]
    await one.aclose()


async def test_proxy_of_the_environment_is_used(endpoint, monkeypatch):
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")

        def answer_once():
            connection, _ = proxy.accept()
            with connection:
                asked.append(connection.recv(65536).split(b"\r\n")[0])
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        thread = threading.Thread(target=answer_once)
        thread.start()
        outside = NeMoGymAsyncOpenAI(base_url="http://endpoint.test/v1", api_key=KEY)
        direct = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key=KEY)
        assert await outside.create_models() == {}
        assert (await direct.create_models())["data"]
        thread.join()
        await outside.aclose()
        await direct.aclose()
    assert asked == [b"GET http://endpoint.test/v1/models HTTP/1.1"]


class Carrier(NeMoGymAsyncOpenAI):
    """A client with a transport of its own, which is busy at first and then answers."""

    carried: list[tuple[str, bytes, str]] = Field(default_factory=list)

    @property
    def send(self):
        return self._carry

    async def _carry(self, url, body, headers, timeout_s):
        self.carried.append((url, body, headers["Authorization"]))
        if len(self.carried) == 1:
            return 429, f"busy, {headers['Authorization']}".encode(), {"retry-after": "0"}
        return 200, b'{"choices": []}', {}


async def test_transport_of_a_subclass_has_retries():
    client = Carrier(base_url="carrier:m", api_key=KEY, timeout_s=7)
    assert await client.create_chat_completion(model="m", messages=[]) == {"choices": []}
    asked = ("carrier:m/chat/completions", b'{"model":"m","messages":[]}', f"Bearer {KEY}")
    assert client.carried == [asked, asked]


async def test_transport_of_a_subclass_has_redaction():
    client = Carrier(base_url="carrier:m", api_key=KEY, tries=1)
    with pytest.raises(
        EndpointError, match=r"^POST carrier:m/chat/completions answered 429: busy, Bearer \[redacted\]$"
    ):
        await client.create_chat_completion(model="m", messages=[])


def test_pauses_grow_and_retry_after_is_bounded():
    backoff = Backoff(first_s=1.0, factor=2, longest_s=10.0)
    assert 0.5 <= backoff.pause_s(1) <= 1.5
    assert 2.0 <= backoff.pause_s(3) <= 6.0
    assert backoff.pause_s(1, 7) == 7.0
    assert backoff.pause_s(1, 3600) == 10.0


@each_case(
    ("value", "seconds"),
    [("2", 2.0), ("-1", 0.0), ("soon", None), (None, None), ("", None),
     ("Sun, 22 Nov 2026 10:00:00 +99999999999999999999", None), ("9" * 400, math.inf), ("nan", None)],
)  # fmt: skip
def test_retry_after_seconds_are_parsed(value, seconds):
    assert seconds_of_retry_after(value) == seconds


def test_retry_after_may_be_a_date():
    then = datetime.now(UTC) + timedelta(seconds=6000)
    assert seconds_of_retry_after(format_datetime(then, usegmt=True)) == pytest.approx(6000, abs=100)


def test_importing_the_client_does_not_import_aiohttp():
    code = "import sys, nemo_gym.http.endpoint; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def bomb(size: int) -> bytes:
    """Return an HTTP response of a few kilobytes whose body has `size` bytes after decompression."""
    packer = zlib.compressobj(wbits=31)
    piece = b" " * 2**20
    body = b"".join([*(packer.compress(piece) for _ in range(size // len(piece))), packer.flush()])
    return b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.slow
async def test_body_is_limited_after_decompression_and_redirect():
    answer = bomb(MAX_BODY_BYTES + 2**20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

        def redirect_then_explode():
            headers = b"location: %b/models\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            redirect = b"HTTP/1.1 307 Elsewhere\r\n" + headers
            for sent in (redirect % address.encode(), redirect % address.encode(), answer):
                connection, _ = listener.accept()
                connection.settimeout(100)
                with connection:
                    connection.recv(65536)
                    connection.sendall(sent)
                    connection.recv(1)

        listener.settimeout(100)
        thread = threading.Thread(target=redirect_then_explode, daemon=True)
        thread.start()
        client = NeMoGymAsyncOpenAI(base_url=address, api_key=KEY)
        with pytest.raises(EndpointError, match=f"the body is larger than the {MAX_BODY_BYTES} bytes allowed"):
            await client.create_models()
        await asyncio.to_thread(thread.join)
        await client.aclose()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1250", "retry-after": "2"}, 1.25),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({}, None),
    ],
)
def test_milliseconds_win_over_seconds(headers, seconds):
    assert pause_asked_for_s(headers) == seconds
