"""A server file started alone finds its project and uses the configuration that it receives."""

import re
import subprocess
import sys

import httpx
import orjson
import pytest

from tests.conftest import PLAIN_SERVER

pytestmark = pytest.mark.slow

APP = """
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.server_utils import get_server_url


class WordConfig(BaseResourcesServerConfig):
    word: str


class Word(SimpleResourcesServer):
    config: WordConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.get("/facts")(self.facts)
        return app

    async def facts(self) -> dict:
        return {"name": self.config.name, "word": self.config.word, "policy": self.policy()}

    def policy(self):
        return get_server_url("policy_model") if "policy_model" in get_global_config_dict() else None

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


if __name__ == "__main__":
    Word.run_webserver()
"""
POLICY = {"responses_api_models": {"sample_model": {"entrypoint": "app.py", "host": "127.0.0.1", "port": 9}}}


def block(word):
    return {"resources_servers": {"word": {"entrypoint": "app.py", "domain": "other", "word": word}}}


def facts_of(workplace, **env):
    """Start the server in its folder with `python app.py` and return its facts."""
    folder = workplace.folder / "resources_servers/word"
    process = subprocess.Popen(
        [sys.executable, "app.py"], cwd=folder, env=workplace.env | env, stderr=subprocess.PIPE, text=True
    )
    try:
        line = next((line for line in process.stderr if "listens on" in line), "nothing")
        address = re.search(r"http://\S+", line).group()
        # The line is logged when the port is bound, shortly before the server listens.
        with httpx.Client(trust_env=False, timeout=100, transport=httpx.HTTPTransport(retries=8)) as client:
            return client.get(f"{address}/facts").json()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def word(workplace):
    workplace.write("resources_servers/word/app.py", APP)
    config = {"word_of_file": block("plum"), "policy_model": POLICY}
    workplace.write("resources_servers/word/configs/word.yaml", orjson.dumps(config).decode())
    return workplace


def test_standalone_server_uses_the_folders_own_config(word):
    assert facts_of(word) == {"name": "word_of_file", "word": "plum", "policy": None}


def test_configuration_in_environment_overrides_files(word):
    handed = {"config_paths": ["gone.yaml"], "one": block("pear"), "two": block("fig"), "policy_model": POLICY}
    facts = facts_of(word, NEMO_GYM_CONFIG_DICT=orjson.dumps(handed).decode(), NEMO_GYM_CONFIG_PATH="two")
    assert facts == {"name": "two", "word": "fig", "policy": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("text", "problem"), [("word: {\n", "word.yaml:2:1: not valid YAML"), ("- word\n", "must be a mapping")]
)
def test_invalid_config_of_the_folder_is_reported(word, text, problem):
    word.write("resources_servers/word/configs/word.yaml", text)
    folder = word.folder / "resources_servers/word"
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=folder, env=word.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Error: configs/word.yaml:")
    assert problem in done.stderr


@pytest.mark.parametrize(("handed", "problem"), [("[1]", "its value is not a mapping"), ("{", "invalid YAML")])
def test_invalid_configuration_in_environment_is_rejected(word, handed, problem):
    folder = word.folder / "resources_servers/word"
    env = word.env | {"NEMO_GYM_CONFIG_DICT": handed}
    done = subprocess.run([sys.executable, "app.py"], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: NEMO_GYM_CONFIG_DICT: ")
    assert problem in done.stderr


def test_server_that_starts_itself_when_it_is_imported_is_started_once(workplace):
    config = workplace.environment(source=f"{PLAIN_SERVER}\n\nPlain.run_webserver()\n")
    done = workplace.run("ng", "env", "schema", "plain", timeout_s=60)
    assert (done.code, "Fields of a row" in done.out) == (0, True), done.err
    servers = workplace.start_servers(config)
    assert [server["name"] for server in servers.servers.values()] == ["plain"]
    assert servers.end().code == 0
