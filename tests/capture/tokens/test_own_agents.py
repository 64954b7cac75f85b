"""Token capture of the plain agent, which passes token ids on as well."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.training import trajectory_of
from tests.frameworks.counting import CONFIGS, SAMPLING, add, counting_row
from tests.frameworks.engine import MODEL, PROGRAM
from tests.rows import rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def collect(shared_workplace, run_endpoint):
    """Return a function that collects one rollout with these settings."""
    row = counting_row(add(2), add(3), "Done.", goal=5, **SAMPLING)
    shared_workplace.write("rows.jsonl", f"{orjson.dumps(row).decode()}\n")

    def collected(name, *words):
        with run_endpoint(PROGRAM) as engine:
            run = shared_workplace.start_servers(
                f"+config_paths=[{','.join(CONFIGS)}]", f"+policy_base_url={engine}/v1", "+policy_api_key=none",
                f"+policy_model_name={MODEL}", *words,
            )  # fmt: skip
            finished = shared_workplace.run(
                "ng_collect_rollouts", f"+head_server.port={run.head.rpartition(':')[2]}",
                "+input_jsonl_fpath=rows.jsonl", f"+output_jsonl_fpath={name}.jsonl",
            )  # fmt: skip
            run.end()
        assert finished.code == 0, finished.err
        (result,) = rows_of(shared_workplace.folder / f"{name}.jsonl")
        return result

    return collected


def test_recorded_tokens_are_those_that_the_agent_passes_on(collect, shared_workplace):
    plain = collect("plain")
    folder = shared_workplace.folder / "tokens"
    recorded = collect("recorded", f"+token_id_capture={{enabled: true, all_agents: true, dir: {folder}}}")
    assert recorded["_ng_token_capture"]["calls"] == 3
    assert recorded["_ng_token_capture"]["branches"] == []
    assert "mask_sample" not in recorded
    assert "_ng_rollout_id" not in recorded
    turns = [trajectory_of(each).turns for each in (recorded, plain)]
    assert all(turn.spans for each in turns for turn in each)
    # The times of two runs differ.
    assert [turn._replace(spans=None) for turn in turns[0]] == [turn._replace(spans=None) for turn in turns[1]]
    assert len(recorded["response"]["output"]) == len(plain["response"]["output"])
    assert list(folder.iterdir()) == []
