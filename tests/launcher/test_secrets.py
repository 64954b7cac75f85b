"""The settings and secrets that each process of a run can see."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

KEY, OTHERS_PASSWORD = "sk-k3y0fth3m0d3l", "0pen5e5ame"
SHOWING_SERVER = """
from omegaconf import OmegaConf
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class ShowingConfig(BaseResourcesServerConfig):
    colour: str


class Showing(SimpleResourcesServer):
    config: ShowingConfig

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/view")
        def view() -> dict:
            return OmegaConf.to_container(self.server_client.global_config_dict)

        @app.get("/address_of_the_other")
        def address() -> str:
            host, port = self.server_client.address_of("guarded")
            return f"http://{host}:{port}"

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
GUARDED_SERVER = """
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class GuardedConfig(BaseResourcesServerConfig):
    database_password: str
    key: str


class Guarded(SimpleResourcesServer):
    config: GuardedConfig

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def written(workplace):
    """Write a configuration of two servers, one of which has its own secrets."""
    workplace.write("env.yaml", f"policy_api_key: {KEY}\nshared_value: 17\n")
    return [
        workplace.environment("showing", SHOWING_SERVER, "colour: red"),
        workplace.environment(
            "guarded", GUARDED_SERVER, f"database_password: {OTHERS_PASSWORD}\nkey: ${{policy_api_key}}"
        ),
    ]


@pytest.fixture(scope="module", params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def running(request, shared_workplace):
    command = shared_workplace.start_servers(
        *written(shared_workplace), "+head_server.expose_secrets=false", f"+process_start_method={request.param}"
    )
    yield command
    command.end()


def test_command_lines_and_environments_contain_no_settings(running, shared_workplace):
    processes = shared_workplace.processes()
    assert {each["pid"] for each in running.servers.values()} < {process.pid for process in processes}
    for process in processes:
        visible = " ".join([*process.cmdline(), *process.environ().values()])
        for setting in (KEY, OTHERS_PASSWORD, "shared_value", "database_password", "guarded:"):
            assert setting not in visible


def test_runtime_files_contain_no_secrets(running, shared_workplace):
    runtime = Path(shared_workplace.env["XDG_RUNTIME_DIR"])
    for path in runtime.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert KEY not in text
            assert OTHERS_PASSWORD not in text


def test_server_sees_its_own_settings_and_all_addresses(running, get_json):
    showing, guarded = running.servers["showing"], running.servers["guarded"]
    view = get_json(f"{showing['url']}/view")
    own = {"entrypoint": "app.py", "colour": "red", "host": showing["host"], "port": showing["port"]}
    assert view["showing"] == {"resources_servers": {"showing": own}}
    assert view["guarded"] == {"resources_servers": {"guarded": {"host": guarded["host"], "port": guarded["port"]}}}
    assert view["shared_value"] == 17
    assert view["head_server"] == {"host": "127.0.0.1", "port": int(running.head.rpartition(":")[2])} | {
        "num_workers": None
    }
    assert OTHERS_PASSWORD not in str(view)
    assert get_json(f"{showing['url']}/address_of_the_other") == guarded["url"]


def test_head_server_masks_secrets(running, get_json):
    text = get_json(f"{running.head}/global_config_dict_yaml")
    config = yaml.safe_load(text)
    assert config["policy_api_key"] == "****"
    guarded = config["guarded"]["resources_servers"]["guarded"]
    assert guarded["database_password"] == "****"
    assert guarded["port"] == running.servers["guarded"]["port"]
    assert KEY not in text
    assert OTHERS_PASSWORD not in text


def test_described_run_has_no_secrets_and_no_settings_of_others(running, get_json):
    shared = get_json(f"{running.head}/run")
    guarded = shared["run"]["servers"]["guarded"]
    assert (guarded["port"], guarded["settings"]) == (running.servers["guarded"]["port"], {})
    assert KEY not in str(shared)
    assert OTHERS_PASSWORD not in str(shared)


@pytest.mark.parametrize(("host", "shows"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_head_server_exposes_secrets_only_on_loopback(workplace, host, shows):
    token = "a-token-of-this-test"
    command = workplace.start_servers(
        *written(workplace), "+head_server.expose_secrets=true", f"+head_server.host={host}", f"+run_token={token}"
    )
    asking = urllib.request.Request(
        f"{command.head}/global_config_dict_yaml", headers={"authorization": f"Bearer {token}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asking, timeout=100) as answer:
        config = yaml.safe_load(json.loads(answer.read()))
    assert (config["policy_api_key"] == KEY) is shows
    assert ("head_server.expose_secrets" in command.err) is not shows


def test_printed_config_masks_secrets(workplace):
    finished = workplace.run("ng_dump_config", *written(workplace), "+wandb_api_key=abcdef")
    assert finished.code == 0
    config = yaml.safe_load(finished.out)
    assert (config["policy_api_key"], config["wandb_api_key"], config["shared_value"]) == ("****", "****", 17)
    # A reference to a secret is not a secret.
    assert config["guarded"]["resources_servers"]["guarded"]["key"] == "${policy_api_key}"
    assert OTHERS_PASSWORD not in finished.out
