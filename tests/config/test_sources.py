"""Sources of a configuration and their priority."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.loading import load
from nemo_gym.errors import ConfigPathNotFoundError, DuplicateServerError, MalformedConfigPathsError
from tests.each_case import each_case

pytestmark = pytest.mark.bare


def test_file_overrides_its_includes_at_any_depth(project):
    project.write(
        main="config_paths: [middle.yaml]\na: main",
        middle="config_paths: [deep.yaml]\na: middle\nb: middle",
        deep="a: deep\nb: deep\nc: deep",
    )
    run = project.load("+config_paths=[main.yaml]")
    assert {key: run.plain[key] for key in "abc"} == {"a": "main", "b": "middle", "c": "deep"}
    assert run.config_paths == ("deep.yaml", "middle.yaml", "main.yaml")
    assert run.raw["config_paths"] == ["deep.yaml", "middle.yaml", "main.yaml"]


def test_later_file_and_its_includes_win(project):
    project.write(first="a: first", second="config_paths: [third.yaml]", third="a: third\nb: 1")
    assert project.load("+config_paths=[first.yaml,second.yaml]").plain["a"] == "third"
    assert project.load("+config_paths=[second.yaml,first.yaml]").plain["a"] == "first"


MODEL = "policy_model: {{responses_api_models: {{{}: {{entrypoint: app.py}}}}}}\n"


def test_server_replaces_another_one_of_an_included_file(project):
    project.write(
        weather="config_paths: [sample.yaml]\nunit: celsius",
        all="config_paths: [weather.yaml]",
        sample=f"{MODEL.format('sample_model')}seed: 1",
        openai=MODEL.format("openai_model"),
    )
    assert project.load("+config_paths=[weather.yaml]").servers["policy_model"].implementation == "sample_model"
    for paths in ("openai.yaml,weather.yaml", "weather.yaml,openai.yaml", "all.yaml,openai.yaml"):
        run = project.load(f"+config_paths=[{paths}]")
        assert run.servers["policy_model"].implementation == "openai_model"
        assert (run.plain["unit"], run.plain["seed"]) == ("celsius", 1)


AGENT = (
    "{0}_agent: {{responses_api_agents: {{simple_agent: {{entrypoint: app.py, "
    "model_server: {{type: responses_api_models, name: policy_model}}}}}}}}\n"
)


def test_random_default_of_another_file_is_noted(project):
    project.write(
        weather=f"config_paths: [sample.yaml]\n{AGENT.format('weather')}",
        one=AGENT.format("one"),
        two=AGENT.format("two"),
        openai=MODEL.format("openai_model"),
        sample=MODEL.format("sample_model"),
        all="config_paths: [one.yaml, weather.yaml, two.yaml]",
        mine="config_paths: [all.yaml, sample.yaml]",
        loop=f"config_paths: [weather.yaml, loop.yaml]\n{AGENT.format('loop')}",
    )
    ending = (
        "the random policy of sample.yaml, which another file includes as its default. Add a model, for example with "
        "--model-type."
    )
    both = (f"no model given: one_agent and 1 other server use {ending}",)
    for paths, notes in {
        "all.yaml": both,
        "two.yaml,weather.yaml": (f"no model given: two_agent uses {ending}",),
        "one.yaml,weather.yaml,two.yaml": both,
        "loop.yaml": (f"no model given: loop_agent uses {ending}",),
        "weather.yaml": (),
        "mine.yaml": (),
        "all.yaml,sample.yaml": (),
        "all.yaml,openai.yaml": (),
    }.items():
        assert project.load(f"+config_paths=[{paths}]").notes == notes, paths


def test_equally_deep_files_cannot_define_two_servers_of_one_name(project):
    project.write(
        weather="config_paths: [sample.yaml]", sample=MODEL.format("sample_model"), openai=MODEL.format("openai_model")
    )
    for paths in ("sample.yaml,openai.yaml", "weather.yaml,sample.yaml,openai.yaml"):
        with pytest.raises(DuplicateServerError, match="two implementations"):
            project.load(f"+config_paths=[{paths}]")


def test_file_listed_twice_is_loaded_once(project, caplog):
    caplog.set_level(logging.INFO)
    include = "config_paths: [shared.yaml]\n"
    project.write(one=f"{include}a: 1", two=f"{include}b: 2", shared="a: 0\nb: 0")
    run = project.load("+config_paths=[one.yaml,two.yaml]")
    assert run.config_paths == ("shared.yaml", "one.yaml", "two.yaml")
    assert (run.plain["a"], run.plain["b"]) == (1, 2)
    assert "shared.yaml is listed twice" in caplog.text


def test_mutual_includes_are_loaded_once(project, caplog):
    project.write(a="config_paths: [b.yaml]\nx: a", b="config_paths: [a.yaml]\nx: b\ny: b")
    run = project.load("+config_paths=[a.yaml]")
    assert (run.plain["x"], run.plain["y"]) == ("a", "b")
    assert "a.yaml -> b.yaml -> a.yaml" in caplog.text


def test_sources_override_each_other_in_order(project):
    project.write(main="a: file\nb: file\nc: file\nd: file", env="b: env\nc: env\nd: env")
    run = project.load("+config_paths=[main.yaml]", "+d=line", initial={"c": "initial", "d": "initial"})
    assert {key: run.plain[key] for key in "abcd"} == {"a": "file", "b": "env", "c": "initial", "d": "line"}


def test_mappings_join_and_lists_are_replaced(project):
    project.write(one="a: {x: 1, y: 1}\nl: [1, 2, 3]", two="a: {y: 2}\nl: [4]")
    run = project.load("+config_paths=[one.yaml,two.yaml]")
    assert run.plain["a"] == {"x": 1, "y": 2}
    assert run.plain["l"] == [4]


def test_unset_in_a_later_file_overrides_nothing(project):
    project.write(one="a: 1", two="a: ???")
    assert project.load("+config_paths=[one.yaml,two.yaml]").plain["a"] == 1


def test_mapping_over_a_reference_merges_with_its_target(project):
    project.write(one="common: {x: 1, y: 1}\na: ${common}")
    assert project.load("+config_paths=[one.yaml]", "+a.y=2").plain["a"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("where", ["paths", "initial", "env", "command line"])
def test_config_paths_may_come_from_anywhere(project, where):
    project.write(main="a: 1")
    named = {"config_paths": ["main.yaml"]}
    if where == "env":
        project.write(env="config_paths: [main.yaml]\nb: 2")
    run = load(
        ["main.yaml"] if where == "paths" else (),
        ["+config_paths=[main.yaml]"] if where == "command line" else (),
        initial=named if where == "initial" else None,
        skip_dotenv=where != "env",
    )
    assert run.plain["a"] == 1
    assert run.config_paths == ("main.yaml",)


@pytest.mark.parametrize(
    "word", ["+config_paths=${mine}", "+config_paths=[${mine}]", "+config_paths=[${mine},c.yaml]"]
)
def test_config_paths_may_refer_to_a_list(project, word):
    project.write(a="x: 1", b="y: 2", c="z: 3", env="mine: [a.yaml, b.yaml]")
    read = ("a.yaml", "b.yaml", *(["c.yaml"] if "c.yaml" in word else []))
    assert project.load(word).config_paths == read
    assert project.load(word, "+mine=[b.yaml]").config_paths == ("b.yaml", *read[2:])


def test_config_paths_may_refer_to_one_file(project):
    project.write(a="x: 1")
    assert project.load("+config_paths=[${mine}]", "+mine=a.yaml").config_paths == ("a.yaml",)
    with pytest.raises(MalformedConfigPathsError, match=r"but is 'a\.yaml'; write \[a\.yaml\]"):
        project.load("+config_paths=${mine}", "+mine=a.yaml")


def test_config_paths_add_up_in_order(project):
    project.write(a="x: a", b="x: b", c="x: c")
    run = load(["a.yaml"], ["+config_paths=[b.yaml]", "+config_paths=[c.yaml]"], skip_dotenv=True)
    assert run.config_paths == ("a.yaml", "b.yaml", "c.yaml")


def test_config_path_may_use_command_line_values(project):
    project.write(**{"configs/small": "size: 1"})
    assert project.load("+config_paths=['configs/${flavor}.yaml']", "+flavor=small").plain["size"] == 1


def test_extra_roots_come_before_the_working_folder(project, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "main.yaml").write_text("a: elsewhere")
    (elsewhere / "env.yaml").write_text("b: elsewhere")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(elsewhere))
    run = project.load_text("a: here", skip_dotenv=False)
    assert (run.plain["a"], run.plain["b"]) == ("elsewhere", "elsewhere")


def test_initial_configuration_may_be_an_omegaconf_mapping(project):
    run = project.load("+b=2", initial=OmegaConf.create({"a": "${b}", "b": 1}))
    assert run.plain == {"a": 2, "b": 2}
    assert run.raw["a"] == "${b}"


def test_explicit_env_yaml_is_optional_and_exclusive(project, tmp_path):
    (tmp_path / "env.yaml").write_text("a: 0")
    (tmp_path / "keys.yaml").write_text("a: 1")
    assert project.load(dotenv_path=Path("keys.yaml"), skip_dotenv=False).plain == {"a": 1}
    assert project.load(dotenv_path=Path("nope.yaml"), skip_dotenv=False).plain == {}


def test_missing_file_reports_location_and_suggestion(project, tmp_path):
    project.write(**{"resources_servers/weather/configs/weather": "a: 1"})
    message = project.refusal(
        ConfigPathNotFoundError, "x: 1\nconfig_paths:\n  - resources_servers/wether/configs/weather.yaml"
    )
    assert message.startswith("main.yaml:3: the file resources_servers/wether/configs/weather.yaml does not exist")
    assert str(tmp_path / "resources_servers/wether/configs/weather.yaml") in message
    assert "Did you mean 'resources_servers/weather/configs/weather.yaml'?" in message


def test_folder_as_config_path_lists_its_files(project):
    project.write(**{"configs/small": "a: 1"})
    message = project.refusal(ConfigPathNotFoundError, "a: 1", "+config_paths=[configs]")
    assert "configs is a folder. Name one of its files: small.yaml" in message


def test_server_folder_as_config_path_lists_its_configs(project):
    project.write(**{"resources_servers/weather/configs/small": "a: 1"})
    message = project.refusal(ConfigPathNotFoundError, "a: 1", "+config_paths=[resources_servers/weather]")
    assert "Name one of its files: resources_servers/weather/configs/small.yaml." in message


@each_case("text", ["one.yaml two.yaml", "one.yaml  two.yaml main.yaml"])
def test_paths_without_comma_are_recognized(project, text):
    project.write(one="a: 1", two="b: 1")
    message = project.refusal(ConfigPathNotFoundError, "a: 1", f"+config_paths=[{text}]")
    assert f"Put commas between the paths: [{', '.join(text.split())}]." in message


@each_case(
    ("text", "expected"),
    [
        ("a: 1\nconfig_paths: b.yaml", "main.yaml:2: config_paths must be a list of paths"),
        ("config_paths: {a: 1}", "main.yaml:1: config_paths must be a list of paths"),
        ("config_paths:\n- [a.yaml]", "main.yaml:2: every item of config_paths must be the path of a YAML file"),
        ("config_path: [a.yaml]", "main.yaml:1: nothing reads config_path. Did you mean 'config_paths'?"),
        ("config_pathss: [a.yaml]", "main.yaml:1: nothing reads config_pathss. Did you mean 'config_paths'?"),
    ],
)
def test_invalid_config_paths_are_rejected(project, text, expected):
    assert expected in project.refusal(MalformedConfigPathsError, text)


@each_case("name", ["my_config_paths", "config_paths_2", "a_config_paths"])
def test_list_of_paths_in_env_yaml_is_a_variable(project, name):
    project.write(env=f"{name}: [b.yaml]", b="b: 1")
    assert project.load(f"+config_paths=${{{name}}}", skip_dotenv=False).plain["b"] == 1
    assert "b" not in project.load(skip_dotenv=False).plain
