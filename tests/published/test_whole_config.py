"""The run of a whole configuration, and its address book."""

from unittest.mock import MagicMock

import pytest
from omegaconf import OmegaConf

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ServerCallError
from nemo_gym.published.whole_config import run_of_config

HEAD = BaseServerConfig(host="127.0.0.1", port=1)
CONFIG = {
    "agent": {"responses_api_agents": {"a": {"host": "127.0.0.1", "port": "${agent_port}"}}},
    "agent_port": 7,
    "game": {"environment_servers": {"g": {"agent_server": {"name": "agent"}}}},
    "unfinished": {"resources_servers": {"u": {"host": "???", "port": 8}}},
    "unresolved": "${nowhere}",
    "unnamed": {"environment_servers": {"g": {"agent_server": {"name": "${nowhere}"}}}},
    "flag": True,
}


def book_of(config: object) -> AddressBook:
    return AddressBook.of_run(run_of_config(config))


def test_published_configuration_becomes_an_address_book():
    book = book_of(OmegaConf.create(CONFIG))
    assert sorted(book.servers) == ["agent", "game", "unfinished"]
    assert book.address_of("agent") == book.address_of("game") == ("127.0.0.1", 7)
    assert book.agent_names() == ["agent", "game"]
    assert book.aliases == {"game": "agent"}
    assert (book.tier_of("unfinished"), book.tier_of("flag")) == ("resources_servers", None)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("unfinished", "does not set the host and the port of 'unfinished'"),
        ("unresolved", "no server is named 'unresolved'; there are: agent, game, unfinished"),
    ],
)
def test_call_to_server_without_address_is_rejected(name, problem):
    with pytest.raises(ServerCallError, match=problem) as raised:
        book_of(OmegaConf.create(CONFIG)).address_of(name)
    assert not raised.value.was_sent


@pytest.mark.parametrize("config", [None, MagicMock(), {}])
def test_mock_configuration_is_an_empty_address_book(config):
    assert book_of(config) == AddressBook()


def test_cycle_of_aliases_ends():
    names = {one: {"environment_servers": {"x": {"agent_server": {"name": other}}}} for one, other in ("ab", "ba")}
    assert not book_of(names).servers


def test_calls_are_not_recorded_without_a_folder():
    book = book_of({"observability_enabled": True})
    assert (book.settings.observability_enabled, book.settings.capture_dir) == (True, None)


def test_invalid_settings_are_left_out():
    book = book_of({"observability_enabled": MagicMock(), "model_cache": MagicMock(), "replicas": 3})
    assert (book.settings.observability_enabled, book.settings.model_cache, book.settings.replicas) == (False, None, 3)


def test_client_calls_only_servers_of_its_address_book():
    book = book_of(CONFIG | {"agent_port": 9, "agent": {
        "responses_api_agents": {"a": {"host": "127.0.0.1", "port": 9}}
    }})  # fmt: skip
    client = ServerClient(head_server_config=HEAD, global_config_dict=OmegaConf.create(CONFIG), address_book=book)
    assert client.address_of("agent") == ("127.0.0.1", 9)


def test_tokens_are_captured_of_agents_that_ask_for_it():
    config = OmegaConf.create(
        {
            "token_id_capture": {"enabled": True, "dir": "/tokens"},
            "a": {"responses_api_agents": {"x": {"entrypoint": "app.py", "token_id_capture": True}}},
            "b": {"responses_api_agents": {"x": {"entrypoint": "app.py"}}},
        }
    )
    assert [book_of(config).captures_tokens_of(name) for name in "ab"] == [True, False]


@pytest.mark.parametrize("config", [None, {}, {"token_id_capture": {"enabled": "yes"}}, object()])
def test_only_a_literal_true_enables_capture(config):
    assert not book_of(config).settings.token_id_capture.enabled
