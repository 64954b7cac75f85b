"""The server whose handler blocks its event loop is named: at the end of a run, and as the cause of a timeout."""

from __future__ import annotations

import pytest

from tests.rows import rows_of

pytestmark = pytest.mark.slow

FRIDGE = """
import time

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class VerifyRequest(BaseVerifyRequest):
    seconds: float


class Fridge(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        time.sleep(body.seconds)
        return 1.0
"""
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


@pytest.fixture
def collect(workplace):
    """Return a function that collects two rollouts, in each of which `verify` blocks for these seconds."""
    workplace.environment("fridge", FRIDGE)
    agent = workplace.agent("fridge")
    configs = f"resources_servers/fridge/configs/fridge.yaml,{agent},{MODEL}"

    def collect(seconds, *words):
        workplace.write("rows.jsonl", f'{{"responses_create_params":{{"input":"x"}},"seconds":{seconds}}}\n' * 2)
        return workplace.run(
            "ng_e2e_collect_rollouts", f"+config_paths=[{configs}]", "+split=example", "+output_jsonl_fpath=out.jsonl",
            "+head_server.port=0", *words,
        )  # fmt: skip

    return collect


def test_blocking_handler_is_named_at_the_end_of_a_run(collect):
    finished = collect(1.5)
    assert finished.code == 0, finished.err
    assert "warning: fridge /verify (app.py:13 in verify) blocked the event loop of its server for " in finished.err
    assert "Make the handler a plain def, which runs in a thread, or await what it waits for." in finished.err


def test_timeout_names_the_server_that_did_not_reply(collect, workplace):
    finished = collect(8, "+rollout_timeout_s=3")
    assert finished.code == 1
    failures = rows_of(workplace.folder / "out_failures.jsonl")
    assert [each["_ng_failure_class"] for each in failures] == ["timeout"] * 2
    assert [each["_ng_failure_server"] for each in failures] == ["fridge"] * 2
    assert all("waiting for /verify of fridge" in each["_ng_failure_message"] for each in failures)
