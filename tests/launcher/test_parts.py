"""The parts of one run, started by several commands."""

from __future__ import annotations

import pytest

from nemo_gym.jsonl import write_rows
from tests.conftest import PATIENCE_S
from tests.waiting import until

pytestmark = pytest.mark.slow

WORDS = ("--resources-server", "mcqa", "--model-type", "sample_model")
AGENT = "mcqa_simple_agent"
ROW = {
    "responses_create_params": {"input": "Which is a gas?\nA: iron\nB: helium\nAnswer with \\boxed{letter}."},
    "options": [{"A": "iron"}, {"B": "helium"}],
    "expected_answer": "B",
}


def test_parts_of_one_run_find_each_other(workplace):
    def status() -> str:
        return workplace.run("ng_status", f"+head_server.port={head.head.rpartition(':')[2]}").out

    head = workplace.start_servers(*WORDS, "--only", f"{AGENT},policy_model")
    joined = workplace.start("ng_run", *WORDS, "--only", "mcqa", "--join", head.head)
    joined.wait_for("joined the run at")
    # The head server gives each server two seconds to answer.
    until(lambda: "3 of 3 servers answer" in status(), status, PATIENCE_S)
    write_rows(workplace.folder / "rows.jsonl", [ROW])
    collected = workplace.run(
        "ng_collect_rollouts", "--agent", AGENT, "--input", "rows.jsonl", "--output", "r.jsonl", "--num-repeats", "8"
    )
    assert "8 planned = 8 scored + 0 failed + 0 unresolved" in collected.out
    assert head.end().code == 0
    # Nothing listens at the head server's address any more.
    stopped = joined.wait()
    assert stopped.code == 1
    assert "so the servers on this machine are stopped" in stopped.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "mcq"), "only names 'mcq', which is not a server of this configuration. Did you mean 'mcqa'?"),
        (("--only", ","), "only must list the servers that this machine starts"),
        (("--join", "ftp://host"), "join must be the address of the run's head server"),
        (("+advertised_host=0.0.0.0",), "advertised_host: no machine can connect to 0.0.0.0"),
    ],
)
def test_invalid_part_is_rejected(shared_workplace, words, message):
    done = shared_workplace.run("ng_run", *WORDS, *words)
    assert done.code == 1
    assert message in done.err
    assert done.err.count("\n") == 1


def test_part_needs_only_its_own_environment_variables(shared_workplace):
    words = (*WORDS, "+policy_model.responses_api_models.sample_model.seed=${oc.env:NOBODY_SETS_THIS}")
    assert "NOBODY_SETS_THIS, which is not set" in shared_workplace.run("ng_run", *words, "+dry_run=true").err
    done = shared_workplace.run("ng_run", *words, "--only", "mcqa", "+dry_run=true")
    assert done.code == 0, done.err


def test_collecting_command_does_not_join(shared_workplace):
    words = ("--join", "http://127.0.0.1:1", "--split", "example", "--output", "r.jsonl")
    done = shared_workplace.run("ng_e2e_collect_rollouts", *WORDS, *words)
    assert done.code == 2
    assert "join is for machines that only serve" in done.err
