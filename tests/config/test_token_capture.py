"""Tests of the `token_id_capture` block."""

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.errors import ConfigError
from tests.each_case import each_case

AGENT = "a: {responses_api_agents: {simple_agent: {entrypoint: app.py, token_id_capture: true}}}\n"
ON = "token_id_capture: {enabled: true, dir: /tokens}\n"


@each_case(
    ("block", "problem"),
    [
        ("{enabld: true}", "main.yaml:1: token_id_capture.enabld: unknown setting. Did you mean 'enabled'?"),
        ("{enabled: true}", "dir is not set, but the records need an absolute path"),
        ("{enabled: true, dir: tokens}", "dir is 'tokens', but the records need an absolute path"),
        ("{enabled: true, sink: Sink}", "'Sink' does not name a class; write module:Class"),
        ("{enabled: true, dir: /t, max_mask_fraction: 2}", "token_id_capture.max_mask_fraction"),
        ("[1]", "main.yaml:1: token_id_capture"),
    ],
)
def test_invalid_block_is_rejected(block, problem, project):
    message = project.refusal(ConfigError, f"token_id_capture: {block}")
    assert problem in message
    assert message.startswith("main.yaml:1: token_id_capture")


def test_agents_ask_for_capture_in_their_blocks(project):
    book = AddressBook.of_run(project.load_text(AGENT + ON))
    assert book.captures_tokens_of("a")
    assert not book.captures_tokens_of("b")
    assert not book.captures_tokens_of(None)
    assert not AddressBook.of_run(project.load_text(AGENT)).captures_tokens_of("a")


def test_all_agents_may_be_captured():
    tokens = TokenCaptureConfig(enabled=True, all_agents=True, dir="/tokens")
    book = AddressBook(settings=RunSettings(token_id_capture=tokens))
    assert book.captures_tokens_of("any")
