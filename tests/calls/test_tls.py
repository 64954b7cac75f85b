"""The first contact with a head server over TLS: a message instead of a traceback if the two sides do not match."""

from __future__ import annotations

import asyncio
import re

import pytest
from omegaconf import OmegaConf

from nemo_gym.calls import loads
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.models import HeadConfig
from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.errors import HeadServerNotFoundError, UsageError
from nemo_gym.http.internal import InternalClient
from nemo_gym.training.heads import head_at
from tests.certificates import Authority
from tests.each_case import each_case
from tests.http.internal.test_tls import HOST, echoing


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("names", "tls", "problem"),
    [
        ([HOST], None, "speaks TLS. Pass --tls.ca FILE"),
        (["node1"], "own", "it is not valid for '127.0.0.1'. Call the server by a name in the certificate"),
        ([HOST], Tls(ca=SYSTEM), "no authority that this machine trusts issued it"),
        (None, "own", "the server does not speak TLS"),
    ],
)
async def test_mismatch_is_explained(names, tls, problem, authority):
    async with echoing(names and authority.tls("head", *names)) as port:
        head = HeadConfig(host=HOST, port=port, tls=authority.trusted if tls == "own" else tls)
        with pytest.raises(HeadServerNotFoundError, match=re.escape(problem)) as refused:
            await asyncio.to_thread(ServerClient.load_from_global_config, head)
        assert "\n" not in str(refused.value)
        async with InternalClient(tls=head.tls) as client:
            with pytest.raises(HeadServerNotFoundError, match=re.escape(problem)):
                await loads.ask_for_servers(client, head)


@each_case(
    ("url", "ca", "expected"),
    [
        ("http://gym:11000", None, ("http://gym:11000", None)),
        ("https://gym", None, ("https://gym:443", SYSTEM)),
        ("https://[::1]:11000", SYSTEM, ("https://[::1]:11000", SYSTEM)),
    ],
)
def test_head_server_is_named_by_its_url(url, ca, expected):
    head = head_at(url, ca)
    assert (head.url, head.tls and head.tls.ca) == expected


@each_case(
    ("url", "ca", "problem"),
    [
        ("gym:11000", None, "is not the address of a head server"),
        ("ftp://gym:11000", None, "is not the address of a head server"),
        ("https://gym:port", None, "is not the address of a head server"),
        ("https://gym", "missing.pem", "ca='missing.pem': cannot be read"),
        ("https://gym", __file__, "cannot be read as certificates in PEM format"),
    ],
)
def test_invalid_head_server_is_explained(url, ca, problem):
    with pytest.raises(UsageError, match=re.escape(problem)):
        head_at(url, ca)


async def test_status_of_a_server_over_tls(authority):
    tls = authority.tls("status", HOST)
    async with echoing(tls) as port:
        config = {"host": HOST, "port": port}
        head = {"host": HOST, "port": port}
        block = {"server": {"resources_servers": {"server": {"entrypoint": "app.py", **config}}}}
        config_dict = OmegaConf.create({**block, "tls": tls.model_dump(mode="json")})
        client = ServerClient(head_server_config=head, global_config_dict=config_dict)
        assert client._build_server_base_url(config) == f"https://{HOST}:{port}"
        assert await asyncio.to_thread(client.poll_for_status, "server") == "success"
        assert (await client.get("server", "/")).status == 200
        await client.aclose()
