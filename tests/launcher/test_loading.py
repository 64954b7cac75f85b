"""A server that loads a model may need longer to start than others, and shows its progress."""

import pytest

pytestmark = pytest.mark.slow

HEAD = "+head_server.port=0"
SLOW_SERVER = """
import asyncio, pathlib

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Slow(SimpleResourcesServer):
    async def startup(self):
        print("Loading weights: 50%", flush=True)
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.05)

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""

LOADING_SERVER = """
import asyncio, pathlib

from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, ModelFailed, SimpleResourcesServer


class LoadingConfig(BaseResourcesServerConfig):
    start_timeout_s: float = 300.0
    num_workers: int | None = 1
    fails: bool = False


class Loading(SimpleResourcesServer):
    config: LoadingConfig

    async def startup(self):
        if self.config.fails:
            raise ModelFailed("the engine has a wrong option")
        self.note_progress("50% of the weights" + "." * 100)
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.05)

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def test_slow_server_may_ask_for_more_time(workplace):
    config = workplace.environment("slow", SLOW_SERVER, "start_timeout_s: 90")
    command = workplace.start("ng_run", config, HEAD, "+ready_timeout_s=1")
    command.wait_for("of 90 s): Loading weights: 50%")
    workplace.write("resources_servers/slow/go", "")
    command.wait_for("head server: ")
    assert command.end().code == 0


def test_class_may_ask_for_more_time(workplace):
    config = workplace.environment("loading", LOADING_SERVER)
    command = workplace.start("ng_run", config, HEAD, "+ready_timeout_s=90", COLUMNS="80")
    command.wait_for("50% of the weights")
    (shown,) = [line for line in command.err.splitlines() if "50%" in line]
    assert shown.startswith("waiting for loading (")
    assert "of 300 s): 50% of the weights" in shown
    assert len(shown) == 80
    workplace.write("resources_servers/loading/go", "")
    command.wait_for("head server: ")
    assert command.end().code == 0


def test_failure_of_a_start_is_one_line(workplace):
    config = workplace.environment("loading", LOADING_SERVER, "fails: true")
    refused = workplace.run("ng_run", config, HEAD)
    assert (refused.code, refused.err) == (1, "Error: the engine has a wrong option\n")
    assert "Traceback" not in refused.out


def test_default_that_the_launcher_cannot_read_is_reported(workplace):
    config = workplace.environment("loading", LOADING_SERVER)
    refused = workplace.run("ng_run", config, HEAD, "+replicas=2")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "num_workers is 1 by default in LoadingConfig, but the launcher reads this setting only from" in refused.err


@pytest.mark.parametrize("given", ["10m", ".inf", "[600]"])
def test_start_timeout_that_is_no_number_is_reported(workplace, given):
    config = workplace.environment("slow", SLOW_SERVER, f"start_timeout_s: {given}")
    refused = workplace.run("ng_run", config, HEAD)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "slow: start_timeout_s is " in refused.err
    assert "must be a number of seconds, such as 600" in refused.err
