"""The plan of a submission: scripts, places of servers, and mistakes that are found before the job waits."""

from __future__ import annotations

import subprocess

import orjson
import pytest

from nemo_gym.cli.main import main
from nemo_gym.launcher.slurm.job import seconds_of

USUAL = ("submit", "--resources-server", "mcqa", "--model-type", "sample_model", "--split", "example")


@pytest.fixture
def submit(tmp_path, capsys):
    """Return a function that runs `ng submit`, and returns the exit code, the output and the errors."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main([*USUAL, "--output", str(tmp_path / "results" / "x.jsonl"), *words], "ng")
        except SystemExit as exited:
            code = exited.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def resolve(submit):
    """Return a function that returns the plan as JSON."""

    def run(*words: str) -> dict:
        code, out, err = submit("--resolve-only", "--json", *words)
        assert code == 0, err
        return orjson.loads(out)

    return run


def places_in(plan: dict) -> dict[tuple[int, ...], set[str]]:
    return {tuple(part["nodes"]): {*part["servers"]} for part in plan["parts"]}


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_one_node_has_all_servers(resolve, tmp_path):
    plan = resolve("--time", "4:00:00", "--partition", "long", "--num-repeats", "8")
    assert places_in(plan) == {(0,): {"mcqa", "mcqa_simple_agent", "policy_model"}}
    assert {"--partition=long", "--time=4:00:00", "--requeue", "--signal=B:USR1@120", "--exclusive"} <= {
        *plan["sbatch"]
    }
    assert value_of(plan["collect"], "--num-repeats") == "8"
    assert not any("partition" in word for word in plan["collect"])
    assert plan["serve"] is None
    assert not (tmp_path / "results").exists()


def test_other_agent_is_started_if_it_fits(submit, resolve):
    script = resolve("--agent-type", "harness_agent")["script"]
    assert "--agent-config responses_api_agents/harness_agent/configs/harness_agent.yaml" in script
    code, _, errors = submit("--agent-type", "aviary_agent", "--resolve-only")
    assert (code, "mcqa_aviary_agent: it plays with /seed_session and /step, but mcqa lacks /step." in errors) == (
        1,
        True,
    )


def test_replicas_are_on_all_other_nodes(resolve):
    plan = resolve("--nodes", "4", "--num-repeats", "8")
    everything = {"mcqa", "mcqa_simple_agent", "policy_model"}
    assert places_in(plan) == {(0,): everything, (1, 2, 3): {"mcqa", "mcqa_simple_agent"}}
    assert "--num-repeats" not in plan["serve"]


def test_commands_of_the_script_have_flags_only(resolve):
    words = ("--nodes", "2", "--resume", "--concurrency", "4", "+mcqa.resources_servers.mcqa.workers=2")
    plan = resolve(*words, "--policy-base-url", "http://node/v1")
    for command in (plan["collect"], plan["serve"]):
        assert value_of(command, "--mcqa.resources_servers.mcqa.workers") == "2"
        assert value_of(command, "--model-url") == "http://node/v1"
        assert [word for word in command if word.startswith("+")] == []
    assert "at_first=(--resume)" in plan["script"]


def test_places_of_servers_can_be_chosen(resolve):
    places = ("--place", "mcqa=others", "--place", "policy_model=0,2-3", "--place", "mcqa_simple_agent=head")
    assert places_in(resolve("--nodes", "4", *places)) == {
        (0,): {"mcqa_simple_agent", "policy_model"},
        (1,): {"mcqa"},
        (2, 3): {"mcqa", "policy_model"},
    }


def test_models_served_by_each_node_are_everywhere(resolve):
    plan = resolve("--nodes", "2", "--gpus-per-node", "8", "--node-command", "vllm serve 'my model' --port 8000")
    assert places_in(plan)[1,] == {"mcqa", "mcqa_simple_agent", "policy_model"}
    assert "--gpus-per-node=8" in plan["sbatch"]


@pytest.mark.parametrize(
    "words",
    [
        ("--nodes", "3", "--node-command", "echo 'a  b' \"$HOME\"", "--sbatch-option=--comment=it's here"),
        ("--container", "image.sqsh", "--container-mount", "/data:/data"),
        ("--container", "image.sif", "--container-runtime", "apptainer", "--gpus-per-node", "1"),
    ],
)
def test_script_is_valid_bash(resolve, words):
    script = resolve(*words)["script"]
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_container_gets_the_working_folder(resolve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = resolve("--container", "image.sqsh", "--container-mount", "/data:/data")
    mounts = f"--container-mounts={tmp_path}:{tmp_path},{tmp_path}/results:{tmp_path}/results,/data:/data"
    assert mounts in plan["script"]
    assert plan["collect"][0] == "ng"


def test_time_without_quotes_in_yaml_is_rejected(submit, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text("time: 4:00:00\n")
    code, out, err = submit("--resolve-only", "--config", str(config))
    assert (code, out) == (2, "")
    assert "time: it is the number 14400" in err
    config.write_text("time: '4:00:00'\n")
    assert "#SBATCH --time=4:00:00" in submit("--resolve-only", "--config", str(config))[1]


def test_ray_alone_starts_the_servers(resolve):
    plan = resolve("--launcher", "ray", "--nodes", "2")
    assert (plan["serve"], len(plan["parts"])) == (None, 1)


def test_published_spelling_is_an_alias(capsys, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("config_paths: [resources_servers/mcqa/configs/mcqa.yaml]\n")
    sample = ("--model-type", "sample_model", "--output", str(tmp_path / "x.jsonl"))
    assert main(["eval", "submit", "-c", str(config), *sample, "--dry-run"], "ng") == 0
    assert f"--config {config}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--time", "1"), "time 1 is 60 s, but the job starts no rollouts in its last 120 s"),
        (("--time", "tomorrow"), "time must be minutes"),
        (("--place", "mcq=head"), "place: there is no server 'mcq'. Did you mean 'mcqa'?"),
        (("--place", "mcqa"), "place: 'mcqa' is not NAME=WHERE"),
        (("--place", "mcqa=3"), "names node 3, but the last of 1 nodes is 0"),
        (("--place", "mcqa=2-1"), "the nodes must be head, others, all"),
        (("--place", "mcqa=others"), "matches no node"),
        (
            ("--nodes", "2", "--place", "mcqa=head", "--place", "mcqa_simple_agent=head"),
            "no server would run on node 1",
        ),
        (
            ("--nodes", "2", "--place", "mcqa=0", "--place", "mcqa=1"),
            "place: 'mcqa=1' contradicts an earlier --place for mcqa",
        ),
        (("--policy-api-key", "sk-123456789"), "'--model-api-key ****' has a secret"),
        (("--only", "mcqa"), "only: the job sets this key itself"),
        (("--nodes", "2", "+run_token=false"), "run_token: false opens the servers"),
    ],
)
def test_mistakes_are_reported_at_once(submit, words, problem):
    code, out, err = submit("--resolve-only", *words)
    assert code == 2
    assert problem in err
    assert (out, err.count("\n")) == ("", 1)


def test_servers_that_need_one_process_stay_together(submit):
    mcp = "+mcqa.resources_servers.mcqa.expose_tools_over_mcp=true"
    code, _, err = submit("--resolve-only", "--nodes", "2", mcp, "--place", "mcqa=all")
    assert code == 2
    assert "place: 'mcqa' cannot run on several nodes" in err


def test_servers_that_grade_groups_may_be_spread(submit):
    groups = "+mcqa.resources_servers.mcqa.group_verification={}"
    code, _, err = submit("--resolve-only", "--nodes", "2", groups, "--place", "mcqa=all")
    assert (code, err) == (0, "")


def test_missing_slurm_is_explained(submit, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = submit()
    assert (code, out) == (1, "")
    assert err.startswith("Error: sbatch was not found: Slurm is not installed on this machine, or not on the PATH.")


def test_output_of_earlier_run_is_kept(submit, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.jsonl").write_text("{}\n")
    code, _, err = submit()
    assert code == 1
    assert "contains rollouts of an earlier run. Add --resume" in err


def test_folder_without_submission_is_reported(capsys, tmp_path):
    assert main(["submit", "status", str(tmp_path / "x.jsonl")], "ng") == 1
    assert "there is no submission here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30", 1800), ("1:30", 90), ("4:00:00", 14400), ("2-0", 172800), ("1-2:30", 95400), ("1-02:30:05", 95405)],
)
def test_time_limits_are_read_as_slurm_does(time, seconds):
    assert seconds_of(time) == seconds
