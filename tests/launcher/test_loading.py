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


def test_slow_server_may_ask_for_more_time(workplace):
    config = workplace.environment("slow", SLOW_SERVER, "start_timeout_s: 90")
    command = workplace.start("ng_run", config, HEAD, "+ready_timeout_s=1")
    command.wait_for("of 90 s): Loading weights: 50%")
    workplace.write("resources_servers/slow/go", "")
    command.wait_for("head server: ")
    assert command.end().code == 0


@pytest.mark.parametrize("given", ["10m", ".inf", "[600]"])
def test_start_timeout_that_is_no_number_is_reported(workplace, given):
    config = workplace.environment("slow", SLOW_SERVER, f"start_timeout_s: {given}")
    refused = workplace.run("ng_run", config, HEAD)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "slow: start_timeout_s is " in refused.err
    assert "must be a number of seconds, such as 600" in refused.err
