"""A small environment that keeps all promises, and functions to change and to check it."""

import asyncio
from pathlib import Path

from nemo_gym.contract.checks import check_environment
from nemo_gym.contract.environment import open_environment

APP = '''
import random
from nemo_gym import BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool

SHARED = []


class Sum(SessionState):
    total: int = 0


class VerifyRequest(BaseVerifyRequest):
    wanted: int


class SumServer(SimpleResourcesServer):
    @tool
    async def add(self, number: int, state: Sum) -> int:
        """Add to the sum."""
        SHARED.append(number)
        state.total += number
        return state.total

    async def verify(self, body: VerifyRequest, state: Sum) -> float:
        return float(state.total == body.wanted)
'''


ORACLE = """
from nemo_gym.testing import call

def solve(row):
    return [call("add", number=row["wanted"] - 1), call("add", number=1), "Done."]
"""


CONFIG = """
sums:
  resources_servers:
    sums: {entrypoint: app.py}
sums_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: sums}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: resources_servers/sums/data/example.jsonl}
"""


README = """# sums

The reward is 1 for the right sum. Licence of the data: our own.

    ng_test +entrypoint=resources_servers/sums
"""


def broken_promises(folder: Path, *overrides: str) -> dict[str, str]:
    with open_environment(folder, overrides) as environment:
        findings = asyncio.run(check_environment(environment))
    return {finding.promise: finding.detail for finding in findings if not finding.is_kept}


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
