"""`--from KIND:ADDRESS` runs and checks an environment of another framework, with rows of its own."""

import orjson
import pytest

from nemo_gym.cli.main import main
from nemo_gym.cli.outside import outside_of
from nemo_gym.errors import ConfigPathNotFoundError, UsageError

LAKE = "gymnasium:FrozenLake-v1"


@pytest.mark.slow
def test_rows_are_made_anew_unless_the_run_is_resumed(workplace):
    command = ["eval", "run", "--from", LAKE, "--split", "validation", "--model-type", "sample_model", "--limit", "2"]
    finished = workplace.run("ng", *command, "--output", "results/a.jsonl")
    assert finished.code == 0, finished.err
    rollouts = [orjson.loads(line) for line in (workplace.folder / "results/a.jsonl").read_bytes().splitlines()]
    assert [row["env_id"] for row in rollouts] == ["FrozenLake-v1"] * 2
    (made,) = (workplace.folder / "results/sources").glob("gymnasium_FrozenLake_v1_*.jsonl")
    rows = made.read_bytes()
    made.write_bytes(rows.splitlines(keepends=True)[0])
    assert workplace.run("ng", *command, "--output", "results/b.jsonl").code == 0
    assert made.read_bytes() == rows
    made.write_bytes(rows + b"\n")
    assert workplace.run("ng", *command, "--output", "results/b.jsonl", "--resume").code == 0
    assert made.read_bytes() == rows + b"\n"


@pytest.mark.slow
def test_rows_of_a_file_replace_those_of_the_environment(workplace):
    row = {"responses_create_params": {"input": "Go right."}, "seed": 41}
    (workplace.folder / "rows.jsonl").write_bytes(orjson.dumps(row))
    command = ["eval", "run", "--from", LAKE, "--input", "rows.jsonl", "--model-type", "sample_model"]
    finished = workplace.run("ng", *command, "--output", "results/a.jsonl")
    assert finished.code == 0, finished.err
    assert orjson.loads((workplace.folder / "results/a.jsonl").read_bytes())["seed"] == 41


@pytest.mark.parametrize(
    ("text", "kind", "error"),
    [
        (
            "gymnasum:Lake-v1",
            ConfigPathNotFoundError,
            "of the kind 'gymnasum'. Did you mean 'gymnasium'",
        ),
        ("Lake-v1", ConfigPathNotFoundError, "of the kind 'Lake-v1'"),
        ("gymnasium", UsageError, "--from gymnasium: the address is missing. Write --from gymnasium:ADDRESS"),
        ("gymnasium:", UsageError, "the address is missing"),
    ],
)
def test_unknown_kind_and_missing_address_are_reported(text, kind, error):
    with pytest.raises(kind) as raised:
        outside_of(text, None)
    assert error in str(raised.value)


def test_splits_and_addresses_have_files_of_their_own():
    found = [outside_of(LAKE, None), outside_of(LAKE, "train"), outside_of("gymnasium:Taxi-v4", None)]
    files = {
        override.value.value for each in found for override in each.overrides if override.path == ("source_file",)
    }
    assert len(files) == 3


@pytest.mark.slow
def test_environment_elsewhere_is_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A busy machine holds the event loop for longer than an environment may.
    monkeypatch.setattr("nemo_gym.contract.checks.BLOCK_LIMIT_S", 100.0)
    monkeypatch.setattr("nemo_gym.contract.checks.VERIFY_LIMIT_S", 100.0)
    assert main(["env", "check", "--from", "gymnasium:Blackjack-v1", "--split", "validation"]) == 0
    assert "10 of 10 promises kept" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["env", "check", "--split", "validation", "gymnasium"])
    assert "--split names a split of the environment of --from, which is missing" in capsys.readouterr().err


def test_tasks_elsewhere_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["list", "environments", "--from", "gymnasium:Blackjack-v1", "--split", "validation"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert [len(out), out[0].split(), out[1].split()[:2]] == [22, ["task", "env_id", "seed", "unreadable_reward"], [
        "0", "Blackjack-v1"]]  # fmt: skip
    assert out[-1] == "100 tasks; --json lists them all, and the table the first 20"
    assert main([*words, "--json"]) == 0
    tasks = orjson.loads(capsys.readouterr().out)
    assert (len(tasks), tasks[0]["env_id"]) == (100, "Blackjack-v1")
