from unittest.mock import MagicMock

from nemo_gym.server_utils import ServerClient
from resources_servers.phone_book.app import (
    LookUpRequest,
    PhoneBookResourcesServer,
    PhoneBookResourcesServerConfig,
    PhoneBookVerifyRequest,
)


def _server() -> PhoneBookResourcesServer:
    config = PhoneBookResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return PhoneBookResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


async def test_the_book_is_read_once_it_is_made() -> None:
    server = _server()
    assert (await server.look_up(LookUpRequest(name="Ada"))).number == "555-0101"
    assert (await server.look_up(LookUpRequest(name="Bob"))).number is None
    assert server._lookups == 2
    # Private state belongs to one instance.
    assert _server()._lookups == 0


async def test_verify_needs_no_more_than_a_constructed_body() -> None:
    response = MagicMock(output_text="Call 555-0102.")
    request = PhoneBookVerifyRequest.model_construct(expected_number="555-0102", response=response)
    assert request.response is response

    server = PhoneBookResourcesServer.model_construct(config=_server().config, server_client=None)
    assert server._numbers["Grace"] == "555-0102"
    assert server.server_client is None
