"""How the run of a program ends."""

import pytest

from nemo_gym.capture.exchange import DIALECTS
from nemo_gym.errors import AgentFailed
from nemo_gym.harness import Gateway, Program
from nemo_gym.harness.exchange import Exchange
from nemo_gym.sandbox import SandboxExecResult
from nemo_gym.sandbox.providers.base import TIMED_OUT, TIMED_OUT_CODE

VALUES = dict.fromkeys(
    ("openai_base_url", "anthropic_base_url", "gemini_base_url", "api_key", "model", "mcp_url"), "x"
)


class SlowSandbox:
    """A sandbox whose programs reach their timeout, after a call beyond the limit of `gateway` if it is given."""

    def __init__(self, gateway=None):
        self.gateway = gateway

    async def exec(self, words, *, env, timeout_s):
        if self.gateway:
            self.gateway.limit_reached.set()
        return SandboxExecResult("", "Thinking", TIMED_OUT_CODE, TIMED_OUT)


def gateway_after_a_call():
    return Gateway(None, "policy", exchanges=[Exchange(DIALECTS["/v1/responses"], {}, {})], calls=1)


async def test_timeout_after_the_limit_of_calls_is_graded():
    gateway = gateway_after_a_call()
    ran = await Program(["agent"]).run(SlowSandbox(gateway), gateway, VALUES)
    assert (ran.ended_by, ran.exit_code) == ("max_steps", TIMED_OUT_CODE)


async def test_timeout_before_the_limit_of_calls_fails():
    with pytest.raises(AgentFailed, match="agent did not end within 600 s and was killed: Thinking"):
        await Program(["agent"]).run(SlowSandbox(), gateway_after_a_call(), VALUES)
