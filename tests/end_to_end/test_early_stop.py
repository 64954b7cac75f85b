"""A wrong key stops a run after its first identical failures, and the run can be resumed with the right one."""

from __future__ import annotations

import orjson
import pytest

from tests.conftest import PLAIN_SERVER
from tests.rows import rows_of

pytestmark = pytest.mark.slow

ROWS = 60
REASON = "ended by early_stop: the first 20 model calls failed in the same way, and no rollout was scored: "


@pytest.fixture
def collect(workplace, endpoint):
    """Return a function that collects 60 rows with a model, which selects what the endpoint does."""
    workplace.environment("plain", PLAIN_SERVER)
    workplace.write("rows.jsonl", "".join(f'{{"responses_create_params":{{"input":"{n}"}}}}\n' for n in range(ROWS)))
    model_server = "responses_api_models/openai_model/configs/openai_model.yaml"
    agent = workplace.agent()
    configs = f"resources_servers/plain/configs/plain.yaml,{agent},{model_server}"

    def collect(model, *words):
        return workplace.run(
            "ng_e2e_collect_rollouts", f"+config_paths=[{configs}]", "+split=example", "+output_jsonl_fpath=out.jsonl",
            "+head_server.port=0", "+num_samples_in_parallel=4", f"+policy_base_url={endpoint}/v1",
            f"+policy_api_key=key-of-{model.partition(':')[0]}", f"+policy_model_name={model}", *words,
        )  # fmt: skip

    return collect


def test_wrong_key_stops_the_run(collect, workplace):
    stopped = collect("status:401")
    assert (stopped.code, REASON in stopped.err) == (1, True), stopped.err
    assert "--no-early-stop" in stopped.err
    failed = len(rows_of(workplace.folder / "out_failures.jsonl"))
    assert 20 <= failed < ROWS
    record = orjson.loads((workplace.folder / "out_run.json").read_bytes())
    assert record["ended_by"].startswith("early_stop: ")
    assert record["outcomes"]["unresolved"] == ROWS - failed
    # Nothing is scored yet, so the run accepts another model.
    resumed = collect("fine", "+resume_from_cache=true")
    assert resumed.code == 0, resumed.err
    assert len(rows_of(workplace.folder / "out.jsonl")) == ROWS


def test_run_without_early_stop_tries_every_row(collect, workplace):
    finished = collect("status:404", "+no_early_stop=true")
    assert (finished.code, REASON in finished.err) == (1, False)
    assert len(rows_of(workplace.folder / "out_failures.jsonl")) == ROWS
