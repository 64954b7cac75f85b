"""Responses with the status `failed`, although their HTTP status is 200."""

import orjson
import pytest

from nemo_gym.errors import EndpointError
from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI
from nemo_gym.http.reply_cache import ReplyCache, current_cache


@pytest.fixture
async def client(endpoint):
    client = NeMoGymAsyncOpenAI(base_url=f"{endpoint}/v1", api_key="sk-1")
    yield client
    await client.aclose()


async def parsed(client, model):
    return await client.create_response(model=model, input="Hello")


async def unparsed(client, model):
    return orjson.loads(await client.ask("responses", {"model": model}, b'"Hello"'))


@pytest.mark.parametrize("call", [parsed, unparsed])
@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded"])
async def test_temporary_failure_is_retried(client, seen, call, code):
    assert (await call(client, f"failed:{code}:2:{call.__name__}"))["status"] == "completed"
    assert len(seen()) == 3


@pytest.mark.parametrize("call", [parsed, unparsed])
@pytest.mark.parametrize(
    ("code", "status", "tries", "ending"),
    [("server_error", 500, 3, r" \(tried 3 times\)"), ("invalid_prompt", None, 1, "")],
)
async def test_lasting_failure_is_an_error(client, seen, call, code, status, tries, ending):
    message = rf"/v1/responses sent a response with the status 'failed': The model crashed\. \(code {code}\){ending}$"
    with pytest.raises(EndpointError, match=message) as caught:
        await call(client, f"failed:{code}")
    assert (caught.value.status, len(seen())) == (status, tries)


@pytest.mark.parametrize("call", [parsed, unparsed])
@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
async def test_unfinished_response_is_an_error(client, seen, call, status):
    with pytest.raises(EndpointError, match=f"the status '{status}', so the answer is missing"):
        await call(client, f"unfinished:{status}")
    assert len(seen()) == 1


async def test_stored_unfinished_response_is_not_used(client, seen, monkeypatch, tmp_path):
    monkeypatch.setattr(ReplyCache, "key_of", lambda *_: "0123456789abcdef")
    cache = ReplyCache(tmp_path, "run").opened()
    await cache.write("0123456789abcdef", b'{"status": "in_progress"}')
    token = current_cache.set(cache)
    try:
        assert (await parsed(client, "echo"))["status"] == "completed"
        assert (await parsed(client, "echo"))["status"] == "completed"
    finally:
        current_cache.reset(token)
    assert len(seen()) == 1
