"""Proxies of the environment, for the calls of rollouts and for the check of an endpoint before a run."""

import asyncio
import gzip
import socket
from urllib.parse import urlsplit

import pytest

from nemo_gym.errors import DataError, EndpointError
from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI
from nemo_gym.http.probe import Trouble, trouble_of
from nemo_gym.http.proxies import proxy_of
from nemo_gym.testing import make_server
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.each_case import each_case
from tests.model_servers.raw_endpoint import raw_endpoint
from tests.model_servers.servers import chat, written

PROXY = "http://192.0.2.9:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@each_case(
    ("host", "exceptions", "is_used"),
    [
        ("192.0.2.7", "", True),
        ("192.0.2.7", "192.0.2.0/24", False),
        ("192.0.3.7", "example.org, 192.0.2.0/24", True),
        ("192.0.2.7", "example.org, 192.0.2.5/24", False),
        ("[2001:db8::1]", "2001:db8::/32", False),
        ("a.example.org", "example.org", False),
        ("example.net", "192.0.2.0/24,no/net", True),
        ("127.0.0.1", "", False),
    ],
)
def test_network_of_no_proxy_is_excluded(host, exceptions, is_used):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", PROXY)
        patch.setenv("no_proxy", exceptions)
        assert (proxy_of(urlsplit(f"http://{host}:8000/v1")) is not None) == is_used


async def test_dead_proxy_does_not_concern_an_endpoint_on_loopback(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with raw_endpoint() as endpoint:
        assert await asyncio.to_thread(trouble_of, endpoint.url, 10.0) is None


async def test_proxy_that_does_not_reach_the_endpoint_is_reported(monkeypatch):
    async with raw_endpoint() as proxy:
        proxy.status = 503
        monkeypatch.setenv("http_proxy", proxy.url)
        assert await asyncio.to_thread(trouble_of, "http://192.0.2.7:8000/v1", 10.0) is Trouble.PROXY
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert await asyncio.to_thread(trouble_of, "http://192.0.2.7:8000/v1", 10.0) is Trouble.PROXY
    client = NeMoGymAsyncOpenAI(base_url="http://192.0.2.7:8000/v1", api_key="sk-1", tries=1)
    with pytest.raises(EndpointError, match=r"through the proxy http://127\.0\.0\.1:1"):
        await client.create_models()
    await client.aclose()


async def test_port_without_tls_is_named():
    async with raw_endpoint() as endpoint:
        url = endpoint.url.replace("http://", "https://")
        assert await asyncio.to_thread(trouble_of, url, 10.0) is Trouble.PLAIN


async def test_gzip_body_is_decompressed():
    async with raw_endpoint() as endpoint:
        client = NeMoGymAsyncOpenAI(base_url=endpoint.url, api_key="sk-1", tries=1)
        endpoint.body, endpoint.headers = gzip.compress(written(chat())), ("content-encoding: gzip",)
        assert await client.create_chat_completion(model="m", messages=[]) == chat()
        endpoint.body = endpoint.body[:12] + b"xxxxxxxx"
        with pytest.raises(EndpointError, match="gzip body that cannot be decompressed"):
            await client.create_chat_completion(model="m", messages=[])
        await client.aclose()


async def test_redirect_loop_is_named():
    async with raw_endpoint() as endpoint:
        client = NeMoGymAsyncOpenAI(base_url=endpoint.url, api_key="sk-1", tries=1)
        endpoint.status, endpoint.headers = 307, (f"location: {endpoint.url}/chat/completions",)
        with pytest.raises(EndpointError, match="redirected 10 times, so the address is a loop"):
            await client.create_chat_completion(model="m", messages=[])
        await client.aclose()


def test_refused_connection_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert trouble_of(f"http://127.0.0.1:{port}/v1", 10.0) is Trouble.REFUSED


@each_case(
    ("url", "key", "problem"),
    [
        ("http://127.0.0.1:1/ v1", "sk", "base_url has a space"),
        ("http://127.0.0.1:1/v1\n", "sk", "base_url has a space"),
        ("http://127.0.0.1:1/v1", "sk-secret\n", "api_key has a line break"),
        ("http://127.0.0.1:1/v1", "sk-“secret”", "api_key has a line break"),
    ],
)
def test_unsendable_address_or_key_is_rejected_at_start(url, key, problem):
    for kind, prefix in ((VLLMModel, ""), (SimpleModelServer, "openai_")):
        with pytest.raises(DataError, match=f"{prefix}{problem}") as caught:
            make_server(kind, **{f"{prefix}base_url": url, f"{prefix}api_key": key, f"{prefix}model": "m"})
        assert "secret" not in str(caught.value)
