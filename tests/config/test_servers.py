"""Typed servers built from YAML blocks."""

from __future__ import annotations

import logging
import re

import pydantic
import pytest
import yaml

from nemo_gym.config.checks import called_by
from nemo_gym.config.models import HeadConfig, Origin
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.without_model import only_for
from nemo_gym.errors import (
    AlmostServerError,
    ConfigError,
    ConfigMissingValuesError,
    DuplicateServerError,
    NoServerInstancesError,
    ServerRefNotFoundError,
    UnknownImplementationError,
)
from tests.each_case import each_case

WHOLE = """
weather:
  resources_servers:
    weather:
      entrypoint: app.py
      domain: agent
      verified: false
      num_workers: 2
      port: ${weather_port}
weather_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      domain: whatever
      resources_server: {type: resources_servers, name: weather}
      inner:
        - limit: 3
      model_server: {type: responses_api_models, name: policy_model}
policy_model:
  responses_api_models:
    vllm_model: {entrypoint: app.py, host: 0.0.0.0}
weather_port: 8123
limit: 3
"""
AGENT = "weather_agent.responses_api_agents.simple_agent"


def test_a_block_becomes_a_typed_server(project, tmp_path):
    run = project.load_text(WHOLE)
    assert list(run.servers) == ["weather", "weather_agent", "policy_model"]
    weather = run.servers["weather"]
    assert (weather.name, weather.type, weather.implementation) == ("weather", "resources_servers", "weather")
    assert (weather.folder, weather.entrypoint) == (tmp_path / "resources_servers/weather", "app.py")
    assert (weather.host, weather.port, weather.port_is_fixed, weather.num_workers) == ("127.0.0.1", 8123, True, 2)
    assert weather.settings["verified"] is False
    assert run.servers["policy_model"].host == "0.0.0.0"
    assert (run.servers["policy_model"].port, run.servers["policy_model"].port_is_fixed) == (0, False)
    assert [server.name for server in run.servers_of("responses_api_agents")] == ["weather_agent"]
    assert (run.plain["limit"], "weather" in run.plain) == (3, False)


def test_server_keeps_origins_of_its_keys(project):
    run = project.load_text(WHOLE, f"+{AGENT}.max_steps=3")
    origins = run.servers["weather_agent"].origins
    assert origins[""] == Origin("main.yaml", 11)
    assert origins["inner.0.limit"] == Origin("main.yaml", 16)
    assert origins["max_steps"] == Origin(f"command line: +{AGENT}.max_steps=3", 0)


def test_the_domain_of_an_agent_is_dropped(project):
    assert "domain" not in project.load_text(WHOLE).servers["weather_agent"].settings


def test_a_run_configuration_is_frozen(project):
    run = project.load_text(WHOLE)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        run.settings = None
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        run.servers["weather"].port = 1


def test_run_defaults_apply_unless_a_server_overrides_them(project):
    words = ("+default_host=10.0.0.1", "+skip_verification=true", "+skip_verification_reward=0.5")
    run = project.load_text(WHOLE, *words)
    assert (run.servers["weather"].host, run.servers["policy_model"].host) == ("10.0.0.1", "0.0.0.0")
    assert run.head.host == "10.0.0.1"
    assert run.servers["weather_agent"].settings["skip_verification"] is True
    assert run.servers["weather_agent"].settings["skip_verification_reward"] == 0.5
    assert "skip_verification" not in run.servers["weather"].settings
    own = project.load_text(WHOLE, *words, f"+{AGENT}.skip_verification=false")
    assert own.servers["weather_agent"].settings["skip_verification"] is False


def test_the_head_server_is_read(project):
    assert project.load_text("head_server: {host: 0.0.0.0, port: 12000}").head == HeadConfig(
        host="0.0.0.0", port=12000, port_is_fixed=True
    )
    message = project.refusal(ConfigError, "a: 1\nhead_server:\n  port: many")
    assert message == "main.yaml:3: head_server.port: it must be a valid integer, but is 'many'."
    message = project.refusal(ConfigError, "a: 1", "+head_server.prt=3")
    assert message == "command line: +head_server.prt=3: head_server.prt: unknown setting. Did you mean 'port'?"


def test_swapped_letters_of_a_key_are_recognized(project):
    message = project.refusal(ConfigError, "a: 1\nhead_server:\n  prot: 12000")
    assert message == "main.yaml:3: head_server.prot: unknown setting. Did you mean 'port'?"


@each_case(
    ("word", "meant"),
    [
        (
            "++wether.resources_servers.weather.limit=5",
            "no server 'wether' to change. Did you mean 'weather'?",
        ),
        ("++other.resources_servers.weather.limit=5", "no server 'other' to change. Did you mean 'weather'?"),
        (
            "++rain.resources_servers.mcqa.limit=5",
            "no server 'rain' to change. The servers are: policy_model",
        ),
        ("++weather.resources_servers.wether.limit=5", "has no folder 'wether' to change. Did you mean 'weather'?"),
        ("++weather.resource_servers.weather.limit=5", "did you mean weather.resources_servers?"),
    ],
)
def test_override_of_unknown_server_gets_a_suggestion(project, word, meant):
    message = project.refusal(ConfigError, WHOLE, word)
    assert message.startswith(f"command line: {word}: ")
    assert meant in message
    assert "\n" not in message


OVERLAY = """
judged:
  resources_servers:
    mcqa: {limit: 5, judge: {type: responses_api_models, name: absent}, key: "${oc.env:NO_SUCH_VARIABLE}"}
"""


def test_block_without_entrypoint_changes_only_an_included_server(project):
    run = project.load_text(WHOLE + OVERLAY)
    assert "judged" not in run.servers
    assert "judged" not in run.plain
    assert run.notes == ()
    project.write(overlay=OVERLAY.replace("key: ", "prompt: ").replace("NO_SUCH_VARIABLE", "HOME"))
    words = "+judged.resources_servers.mcqa.judge.name=policy_model", "+config_paths=[main.yaml,overlay.yaml]"
    project.write(main=f"{WHOLE}judged: {{resources_servers: {{mcqa: {{entrypoint: app.py, limit: 1}}}}}}")
    settings = project.load(*words).servers["judged"].settings
    assert (settings["limit"], settings["judge"]["name"]) == (5, "policy_model")


@each_case("empty", ["{}", "null", "{mcqa: }", "{mcqa: {}}"])
def test_empty_block_without_entrypoint_is_ignored(project, empty):
    assert "s" not in project.load_text(f"{WHOLE}s: {{resources_servers: {empty}}}").servers


def test_overlay_of_the_initial_configuration_is_ignored(project):
    initial = {"judged": {"resources_servers": {"mcqa": {"limit": 5}}}}
    assert "judged" not in project.load_text(WHOLE, initial=initial).servers


@each_case(
    ("block", "meant"),
    [
        ("wether: {resources_servers: {weather: {limit: 5}}}", "weather"),
        ("wether: {resources_servers: {mcqa: {limit: 5}}}", "weather"),
        ("policy_modle: {responses_api_models: {mine: {limit: 5}}}", "policy_model"),
        ("wether: {responses_api_models: {mine: {limit: 5}}}", None),
        ("rain: {resources_servers: {mcqa: {limit: 5}}}", None),
    ],
)
def test_ignored_block_with_a_misspelt_name_gets_a_note(project, block, meant):
    project.write(base=WHOLE)
    notes = project.load_text(f"config_paths: [base.yaml]\n{block}").notes
    name = block.partition(":")[0]
    assert [note.startswith(f"main.yaml:2: {name} is ignored") for note in notes] == ([True] if meant else [])
    assert re.findall(r"Did you mean '(\w+)'", "".join(notes)) == ([meant] if meant else [])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "+process_start_method=spwan",
            "process_start_method: it must be 'fork' or 'spawn', but is 'spwan'. Did you mean 'spawn'?",
        ),
        ("+default_host=[a]", "default_host: it must be a valid string, but is a list."),
    ],
)
def test_invalid_top_level_key_reports_location(project, word, expected):
    message = project.refusal(ConfigError, "a: 1", word)
    assert message.startswith(f"command line: {word}: {expected}")


def test_reserved_keys_are_not_servers(project):
    text = "component_name: {resources_servers: {weather: {entrypoint: app.py}}}\nuv_cache_dir: x\njson: true"
    assert project.load_text(text).servers == {}


def test_alias_refers_to_its_agent(project):
    run = project.load_text(
        WHOLE,
        "+other={environment_servers: {legacy_agent: {agent_server: "
        "{type: responses_api_agents, name: weather_agent}}}}",
        "+more={resources_servers: {mcqa: {entrypoint: app.py, a: {type: responses_api_agents, name: other}}}}",
    )
    assert run.aliases == {"other": "weather_agent"}
    assert "other" not in run.servers
    assert "other" in run.raw
    assert run.server("other") is run.servers["weather_agent"] is run.server("weather_agent")
    with pytest.raises(ServerRefNotFoundError, match="Did you mean 'weather_agent'"):
        run.server("wether_agent")


EPISODES = """
episodes:
  environment_servers:
    single_agent_turn%s:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: weather_agent}
      max_concurrent_episodes: 4
"""


@pytest.mark.parametrize(("suffix", "implied"), [("", {}), ("_legacy", {"seed_with": "row"})])
def test_single_agent_turn_is_a_server_of_its_own(project, suffix, implied):
    word = f"+episodes.environment_servers.single_agent_turn{suffix}.queue_timeout_seconds=5"
    run = project.load_text(WHOLE + EPISODES % suffix, word)
    server = run.servers["episodes"]
    assert (run.aliases, server.type, server.implementation) == ({}, "responses_api_agents", "single_agent_turn")
    expected = {"max_concurrent_episodes": 4, "queue_timeout_seconds": 5, **implied}
    assert {key: server.settings[key] for key in expected} == expected
    # Its resources server is the agent's, unless the block names another one.
    assert server.settings["resources_server"] == {"type": "resources_servers", "name": "weather"}
    assert server.origins["max_concurrent_episodes"].line == 29


def test_unrun_environment_code_is_reported(project, tmp_path, caplog):
    own = EPISODES.replace("single_agent_turn%s", "duel")
    assert project.load_text(WHOLE + own).aliases == {"episodes": "weather_agent"}
    assert caplog.text == ""
    (tmp_path / "environment_servers" / "duel").mkdir(parents=True)
    project.load_text(WHOLE + own)
    assert "episodes.environment_servers.duel: the code in" in caplog.text
    assert "is not run" in caplog.text


def test_single_agent_turn_of_a_missing_agent_is_rejected(project):
    text = (WHOLE + EPISODES % "").replace("name: weather_agent}", "name: weather_agnt}")
    message = project.refusal(ServerRefNotFoundError, text)
    assert message.startswith("main.yaml:28: episodes.")
    assert "Did you mean 'weather_agent'?" in message


def test_alias_of_a_missing_agent_is_rejected(project):
    text = "e:\n  environment_servers:\n    legacy_agent:\n      agent_server:\n        name: weather_agnt\n"
    message = project.refusal(ServerRefNotFoundError, text + WHOLE)
    assert message.startswith("main.yaml:5: e.environment_servers refers to the agent 'weather_agnt'")
    assert "Did you mean 'weather_agent'?" in message


def test_a_dummy_model_is_merged_into_the_real_one(project):
    dummy = {"policy_model": {"responses_api_models": {"dummy_model": {"entrypoint": "x.py", "extra": 1}}}}
    model = project.load_text(WHOLE, initial=dummy).servers["policy_model"]
    assert (model.implementation, model.settings["entrypoint"], model.settings["extra"]) == ("vllm_model", "app.py", 1)


def test_configuration_can_be_read_without_a_model(project):
    without = project.load_text(WHOLE.replace("policy_model:\n", "some_model:\n"), initial=NO_MODEL)
    assert without.servers["policy_model"].implementation == "dummy_model"
    with_model = project.load_text(WHOLE, initial=NO_MODEL)
    assert with_model.servers["policy_model"].implementation == "vllm_model"


def test_configuration_without_servers_fails_only_if_required(project):
    assert project.load_text("a: 1").servers == {}
    assert "main.yaml: no server is defined there" in project.refusal(
        NoServerInstancesError, "a: 1", require_servers=True
    )
    with pytest.raises(NoServerInstancesError, match="No configuration file was given"):
        project.load(require_servers=True)


def test_example_block_in_message_is_valid_yaml(project):
    message = project.refusal(NoServerInstancesError, "a: 1", require_servers=True)
    block = yaml.safe_load(message.split("`")[1])
    assert block == {"name": {"resources_servers": {"folder": {"entrypoint": "app.py"}}}}


def test_all_unset_values_are_listed_with_flags(project):
    message = project.refusal(ConfigMissingValuesError, "a: ???\nb:\n  c:\n  - x: ???")
    assert "2 keys have no value" in message
    assert "--a VALUE --b.c.0.x VALUE" in message
    assert "main.yaml:1: a" in message
    assert "main.yaml:4: b.c.0.x" in message
    assert project.load_text("a: ???\nb:\n  c:\n  - x: ???", "+a=1", "+b.c.0.x=2").plain["b"] == {"c": [{"x": 2}]}


def test_name_with_two_folders_reports_both_files(project):
    server = "s:\n  resources_servers:\n    {}:\n      entrypoint: app.py\n"
    project.write(one=server.format("weather"), two=server.format("mcqa"))
    with pytest.raises(DuplicateServerError, match=r"weather \(one\.yaml:3\) and mcqa \(two\.yaml:3\)"):
        project.load("+config_paths=[one.yaml,two.yaml]")


def test_later_file_overrides_a_server(project):
    server = "s: {{resources_servers: {{weather: {{entrypoint: app.py, x: {}}}}}}}"
    project.write(one=server.format(1), two=server.format(2))
    assert project.load("+config_paths=[one.yaml,two.yaml]").servers["s"].settings["x"] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "s:\n  resources_servers:\n    weather: {entrypoint: app.py}\n    mcqa: {entrypoint: app.py}",
            "main.yaml:4: s.resources_servers has two implementations: weather (main.yaml:3) and mcqa (main.yaml:4)",
        ),
        (
            "s:\n  resources_servers: {weather: {entrypoint: app.py}}\n"
            "  responses_api_agents: {simple_agent: {entrypoint: app.py}}",
            "main.yaml:3: s has two tiers: resources_servers (main.yaml:2) and responses_api_agents (main.yaml:3)",
        ),
    ],
)
def test_one_name_is_one_server(project, text, expected):
    assert project.refusal(DuplicateServerError, text).startswith(expected)


BLOCK = "s:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n"


@each_case(
    ("text", "expected"),
    [
        (BLOCK + "      port: many", "main.yaml:5: s.resources_servers.weather.port: it must be a valid integer"),
        (
            BLOCK + "      port: 70000",
            "main.yaml:5: s.resources_servers.weather.port: it must be less",
        ),
        (BLOCK + "      num_workers: 0", "main.yaml:5: s.resources_servers.weather.num_workers:"),
        (BLOCK + "      domain: agnet", "but is 'agnet'. Did you mean 'agent'?"),
        (BLOCK.replace("entrypoint", "entry_point"), "entrypoint: it is missing; is 'entry_point' a typo for it?"),
        (BLOCK.replace("      entry", "    entry"), "main.yaml:4: s.resources_servers: 'entrypoint' is next to"),
        (
            BLOCK + "  grading_mode: x",
            "main.yaml:5: s.grading_mode is next to resources_servers; did you mean "
            "s.resources_servers.weather.grading_mode?",
        ),
        (
            BLOCK + "  weather: {x: 1}",
            "s.weather is next to resources_servers; did you mean s.resources_servers.weather?",
        ),
        (
            BLOCK.replace("      entry", "  entry"),
            "main.yaml:4: s.entrypoint is next to resources_servers; did you",
        ),
        ("s:\n  resources_servers: {weather: app.py}", "main.yaml:2: s.resources_servers.weather is not a mapping"),
        ("s:\n  resources_servers: weather", "main.yaml:2: s.resources_servers: indent the name of a folder"),
        (
            BLOCK.replace("resources_", "resource_"),
            "main.yaml:2: s.resource_servers: 'resource_servers' is not a server type",
        ),
        (BLOCK.replace("s:\n", "my server:\n", 1), "main.yaml:1: my server: a server name may contain only letters"),
    ],
)
def test_invalid_server_block_reports_location(project, text, expected):
    assert expected in project.refusal(AlmostServerError, text)


@pytest.mark.parametrize("word", ["+weather.x=1", "+weather_agent.max_steps=3"])
def test_override_one_level_too_high_is_rejected(project, word):
    name, _, key = word.removeprefix("+").partition("=")[0].partition(".")
    path = f"{name}.resources_servers.weather" if name == "weather" else AGENT
    message = project.refusal(AlmostServerError, WHOLE, word)
    assert message.startswith(f"command line: {word}: {name}.{key} is next to ")
    assert message.endswith(f"did you mean {path}.{key}?")


def test_metadata_may_be_next_to_the_tier(project):
    assert "s" in project.load_text(BLOCK + "  description: x\n  verified: true").servers
    alias = "e: {environment_servers: {x: {agent_server: {name: weather_agent}}}, note: 1}\n"
    assert project.load_text(alias + WHOLE).aliases == {"e": "weather_agent"}


def test_invalid_server_blocks_can_be_skipped(project, caplog):
    caplog.set_level(logging.WARNING)
    run = project.load_text(WHOLE, "+bad.resources_servers.mcqa.x=1", "+error_on_almost_servers=false")
    assert "bad" not in run.servers
    assert len(run.servers) == 3
    assert "there is no server 'bad' to change" in caplog.text


def test_all_invalid_server_settings_are_listed(project):
    message = project.refusal(AlmostServerError, BLOCK + "      port: many\n      num_workers: none")
    assert [line.split(":")[1] for line in message.splitlines()] == ["5", "6"]


def test_unknown_folder_gets_a_suggestion(project, tmp_path):
    message = project.refusal(UnknownImplementationError, BLOCK.replace("weather", "wether"))
    assert message.startswith("main.yaml:3: s: there is no folder resources_servers/wether with app.py in it")
    assert str(tmp_path) in message
    assert message.endswith("Did you mean 'weather'?")


def test_unknown_entrypoint_gets_a_suggestion(project, tmp_path):
    message = project.refusal(UnknownImplementationError, BLOCK.replace("app.py", "ap.py"))
    folder = tmp_path / "resources_servers/weather"
    assert message == (
        f"main.yaml:4: s.resources_servers.weather.entrypoint: {folder} does not contain ap.py. Did you mean 'app.py'?"
    )


def test_first_root_with_the_entrypoint_wins(project, tmp_path, monkeypatch):
    mine = tmp_path / "mine/resources_servers/weather"
    mine.mkdir(parents=True)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "mine"))
    assert project.load_text(BLOCK).servers["s"].folder == tmp_path / "resources_servers/weather"
    (mine / "app.py").touch()
    assert project.load_text(BLOCK).servers["s"].folder == mine


@each_case(
    ("word", "expected"),
    [
        ("+{}.resources_server.name=wether", "refers to 'wether', which is not defined in any file. Did you mean"),
        ("+{}.resources_server.name=policy_model", "but 'policy_model' is one of the responses_api_models"),
        ("+{}.model_server.name=other", "refers to 'other', which is not defined in any file. The"),
    ],
)
def test_reference_to_missing_server_reports_location(project, word, expected):
    word = word.format(AGENT)
    message = project.refusal(ServerRefNotFoundError, WHOLE, word)
    assert message.startswith(f"command line: {word}: {AGENT}.")
    assert expected in message


def test_missing_model_reports_line_and_remedy(project):
    message = project.refusal(ServerRefNotFoundError, WHOLE, "~policy_model")
    assert message.startswith(f"main.yaml:17: {AGENT}.model_server refers to 'policy_model'")
    assert "Add a model, such as --model-type openai_model or --model-type sample_model, or a con" in message


@each_case(
    "nested",
    [
        "+{}.targets={{one: {{type: resources_servers, name: absent}}}}",
        "+{}.targets=[{{type: resources_servers, name: absent}}]",
        "+{}.judge={{model_server: {{type: responses_api_models, name: absent}}, labels: [a]}}",
    ],
)
def test_reference_inside_a_mapping_or_list_may_dangle(project, nested):
    run = project.load_text(WHOLE, nested.format(AGENT))
    assert [each.name for each in called_by(run.servers["weather_agent"], run)] == ["policy_model", "weather"]
    assert [*only_for(run, ["weather_agent"]).servers] == ["weather", "weather_agent", "policy_model"]


def test_judge_model_must_be_defined(project):
    judge = "{prompt: judge.md, labels: [yes, no], model_server: {type: responses_api_models, name: jugde_model}}"
    message = project.refusal(ServerRefNotFoundError, WHOLE, f"+{AGENT}.judge={judge}")
    assert f"{AGENT}.judge.model_server refers to 'jugde_model'" in message


OWN_FIELDS = """
from settings import BaseConfig
class Helper(BaseModel):
    isolated: str
class WeatherConfig(BaseConfig):
    workers: list[str] = []
    ray: str = ""
"""


def test_declared_field_of_a_folder_is_not_our_setting(project, tmp_path):
    settings = "      workers: [a, b]\n      ray: x\n      num_workers: 2"
    message = project.refusal(AlmostServerError, BLOCK + settings)
    assert "s.resources_servers.weather.workers: it must be a valid integer" in message
    (tmp_path / "resources_servers/weather/app.py").write_text(OWN_FIELDS)
    server = project.load_text(BLOCK + settings).servers["s"]
    assert (server.settings["workers"], server.settings["ray"], server.num_workers) == (["a", "b"], "x", 2)
    message = project.refusal(AlmostServerError, f"{BLOCK}      isolated: maybe")
    assert "s.resources_servers.weather.isolated: it must be a valid boolean" in message
