"""The folders of new environments and benchmarks: their contents, and mistakes in what is wanted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from nemo_gym.cli.init import LONGEST_NAME
from nemo_gym.cli.init.environments import create
from nemo_gym.cli.init.wanted import Profile, Wanted
from nemo_gym.errors import DataError, UserError
from nemo_gym.jsonl import read_rows


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def config_of(folder: Path) -> dict:
    loaded: dict = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
    return loaded


def test_new_environment_has_verifier_and_data(tmp_path: Path) -> None:
    created = create(Wanted("environment", "mine"), tmp_path)
    assert created.folders == (tmp_path / "environments" / "mine", tmp_path / "resources_servers" / "mine")
    assert files_in(tmp_path / "environments" / "mine") == {
        "README.md", "config.yaml", "data/.gitignore", "data/example.jsonl", "manifest.yaml", "oracle.py",
        "prepare.py", "ruff.toml", "tests/test_mine.py",
    }  # fmt: skip
    assert files_in(tmp_path / "resources_servers" / "mine") == {"app.py", "ruff.toml"}
    agent = config_of(created.folders[0])["mine_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert [dataset["type"] for dataset in agent["datasets"]] == ["train", "validation", "example"]


def test_new_benchmark_has_prompt_and_questions(tmp_path: Path) -> None:
    created = create(Wanted("benchmark", "mine"), tmp_path)
    assert files_in(tmp_path) == {
        f"benchmarks/mine/{name}"
        for name in (
            "README.md", "config.yaml", "data/.gitignore", "data/example.jsonl", "manifest.yaml", "prepare.py",
            "prompts/default.yaml", "questions.csv", "ruff.toml", "tests/test_mine.py",
        )
    }  # fmt: skip
    agent = config_of(created.folders[0])["mine_simple_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["datasets"][0] == {
        "name": "mine",
        "type": "benchmark",
        "jsonl_fpath": "benchmarks/mine/data/mine.jsonl",
        "prepare_script": "benchmarks/mine/prepare.py",
        "prompt_config": "benchmarks/mine/prompts/default.yaml",
        "num_repeats": 1,
    }


@pytest.mark.parametrize(
    ("profile", "added"),
    [
        ("custom-gym-agent-loop", {"responses_api_agents/mine/app.py", "environments/mine/tests/test_agent.py"}),
        (
            "external-agent-loop",
            {
                "responses_api_agents/mine/app.py",
                "responses_api_agents/mine/program.py",
                "environments/mine/tests/test_agent.py",
            },
        ),
        ("external-rollout-driver", {"environments/mine/driver.py", "environments/mine/tests/test_driver.py"}),
    ],
)
def test_profile_adds_its_own_files(tmp_path: Path, profile: Profile, added: set[str]) -> None:
    create(Wanted("environment", "mine", profile), tmp_path)
    create(Wanted("environment", "plain"), tmp_path / "plain")
    plain = {name.replace("plain", "mine") for name in files_in(tmp_path / "plain")}
    new = {name for name in files_in(tmp_path) if not name.startswith("plain")} - plain
    assert new - {"responses_api_agents/mine/ruff.toml"} == added


def test_no_template_name_is_left(tmp_path: Path) -> None:
    for kind in ("environment", "benchmark"):
        for profile in ("custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"):
            root = tmp_path / f"{kind}_{profile}"
            create(Wanted(kind, "mine", profile), root)
            for name in files_in(root):
                text = (root / name).read_text("utf-8")
                assert "my_environment" not in text, name
                assert "MyEnvironment" not in text, name
                assert kind == "environment" or "environments/" not in text, name


def test_reused_verifier_brings_settings_and_rows(tmp_path: Path) -> None:
    created = create(Wanted("environment", "mine", verifier="mcqa"), tmp_path)
    assert files_in(tmp_path) == {
        f"environments/mine/{name}"
        for name in (
            "README.md", "config.yaml", "data/.gitignore", "data/example.jsonl", "manifest.yaml", "ruff.toml",
            "tests/test_mine.py",
        )
    }  # fmt: skip
    config = config_of(created.folders[0])
    assert config["mine"]["resources_servers"]["mcqa"]["entrypoint"] == "app.py"
    shipped = Path(__file__).parents[3] / "resources_servers" / "mcqa" / "data" / "example.jsonl"
    assert list(read_rows(tmp_path / "environments/mine/data/example.jsonl")) == list(read_rows(shipped))


def test_reused_game_keeps_its_agent(tmp_path: Path) -> None:
    created = create(Wanted("environment", "mine", verifier="blackjack"), tmp_path)
    agents = config_of(created.folders[0])["mine_gymnasium_agent"]["responses_api_agents"]
    assert agents["gymnasium_agent"]["resources_server"] == {"type": "resources_servers", "name": "mine"}


def test_reused_judge_keeps_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "resources_servers" / "graded"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(
        "from nemo_gym import BaseVerifyRequest, SimpleResourcesServer\n\n\n"
        "class Graded(SimpleResourcesServer):\n"
        "    async def verify(self, body: BaseVerifyRequest) -> float:\n"
        "        return 1.0\n"
    )
    (folder / "rows.jsonl").write_text('{"responses_create_params": {"input": "?"}, "agent_ref": {"name": "x"}}\n')
    (folder / "configs" / "graded.yaml").write_text(
        "judge: {responses_api_models: {sample_model: {entrypoint: app.py, seed: '${seed_of_judge}'}}}\n"
        "seed_of_judge: 3\n"
        "graded: {resources_servers: {graded: {entrypoint: app.py, judged_by: judge}}}\n"
        "graded_agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: graded}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
        "      datasets: [{name: e, type: example, jsonl_fpath: resources_servers/graded/rows.jsonl}]\n"
    )
    monkeypatch.chdir(tmp_path)
    created = create(Wanted("environment", "mine", verifier="graded"), tmp_path)
    config = config_of(created.folders[0])
    assert set(config) == {"judge", "seed_of_judge", "mine", "mine_simple_agent"}
    assert config["judge"]["responses_api_models"]["sample_model"]["seed"] == "${seed_of_judge}"
    assert list(read_rows(created.folders[0] / "data/example.jsonl")) == [{"responses_create_params": {"input": "?"}}]
    # Without an oracle, ng_check could not succeed.
    assert "ng_check" not in created.next_steps


@pytest.mark.parametrize(
    ("is_higher_better", "constants"), [(True, "WORST, BEST = -1.0, 2.5"), (False, "WORST, BEST = 2.5, -1.0")]
)
def test_reward_range_reaches_verifier_and_manifest(tmp_path: Path, is_higher_better: bool, constants: str) -> None:
    wanted = Wanted("environment", "mine", reward_range=(-1.0, 2.5), higher_is_better=is_higher_better)
    create(wanted, tmp_path)
    assert constants in (tmp_path / "resources_servers/mine/app.py").read_text("utf-8")
    manifest = yaml.safe_load((tmp_path / "environments/mine/manifest.yaml").read_text("utf-8"))
    assert manifest["reward"] == {"range": [-1.0, 2.5], "higher_is_better": is_higher_better}


def test_range_of_reused_verifier_is_not_invented(tmp_path: Path) -> None:
    create(Wanted("environment", "mine", verifier="mcqa"), tmp_path)
    manifest = yaml.safe_load((tmp_path / "environments/mine/manifest.yaml").read_text("utf-8"))
    assert manifest["reward"] == {"higher_is_better": True}


def test_readme_lists_the_printed_commands(tmp_path: Path) -> None:
    created = create(Wanted("environment", "mine", "external-rollout-driver"), tmp_path)
    readme = (tmp_path / "environments/mine/README.md").read_text("utf-8")
    printed = [line for line in created.next_steps.splitlines() if line.startswith("    ")]
    assert printed
    assert [line for line in readme.splitlines() if line.startswith("    ") and "schema" not in line] == printed


@pytest.mark.parametrize(
    ("wanted", "advice"),
    [
        (Wanted("environment", "2x"), "start with a letter"),
        (Wanted("benchmark", "policy_model"), "a configuration key of this name"),
        (Wanted("benchmark", "a" * (LONGEST_NAME + 1)), "longer than"),
        (Wanted("environment", "mcqa"), "resources_servers/mcqa has the same name. Choose another name"),
        (Wanted("environment", "gsm8k"), "benchmarks/gsm8k has the same name. Choose another name"),
        (Wanted("environment", "mine", verifier="mqca"), "reuse_verifier=mqca: resources_servers/mqca/configs/"),
        (Wanted("environment", "mine", verifier="mqca"), "Did you mean 'mcqa'?"),
        (
            Wanted("environment", "mine", "external-agent-loop", verifier="blackjack"),
            "its rollouts need the agent gymnasium_agent, but the profile external-agent-loop uses another agent",
        ),
        (Wanted("environment", "mine", verifier="mcqa/nightly"), "The configs of mcqa are: mcqa."),
        (Wanted("environment", "Yes"), "YAML reads it as a constant"),
        (Wanted("environment", "mine", reward_range=(1.0, 1.0)), "reward_range: 1 is not less than 1"),
        (Wanted("environment", "mine", reward_range=(0.0, math.inf)), "reward_range: 0 to inf is not finite"),
        (
            Wanted("environment", "mine", verifier="reasoning_gym/resources_only"),
            "resources_only.yaml: no dataset of the type example",
        ),
    ],
)
def test_mistake_is_reported_before_anything_is_written(tmp_path: Path, wanted: Wanted, advice: str) -> None:
    with pytest.raises(UserError) as refusal:
        create(wanted, tmp_path)
    assert advice in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_failed_creation_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "resources_servers").write_text("a file is in the way")
    with pytest.raises(DataError, match="cannot be written"):
        create(Wanted("environment", "mine"), tmp_path)
    assert files_in(tmp_path) == {"resources_servers"}
