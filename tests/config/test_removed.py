"""Configurations of earlier versions: the messages say what to use instead."""

from __future__ import annotations

import pytest

from nemo_gym.errors import ConfigError

ADVICE = "part of the tasks, such as --shard 1/4, and merge the outputs with ng eval aggregate."
FILE = "responses_api_agents/collecting_agent/configs/collecting_agent.yaml"
COLLECTOR = "rollout_collector: {responses_api_agents: {collecting_agent: {entrypoint: app.py}}}"


@pytest.mark.parametrize(
    ("text", "words", "place"),
    [
        ("a: 1\ncollector: rollout_collector", (), "main.yaml:2: collector is not a setting. "),
        ("sharded: true", (), "main.yaml:1: sharded is not a setting. "),
        ("a: 1", ("+sharded=true",), "command line: +sharded=true: sharded is not a setting. "),
        (COLLECTOR, (), "main.yaml:1: rollout_collector: there is no folder responses_api_agents/collecting_agent "),
        (
            f"config_paths: [{FILE}]",
            (),
            f"main.yaml:1: the file {FILE} does not exist ",
        ),
    ],
)
def test_removed_collectors_are_reported_with_advice(project, text, words, place):
    message = project.refusal(ConfigError, text, *words)
    assert message.startswith(place)
    assert " Rollouts are no longer collected on the agents' machines" in message
    assert message.endswith(ADVICE)


def test_server_may_be_called_collector(project):
    block = "collector: {responses_api_agents: {simple_agent: {entrypoint: app.py}}}"
    assert list(project.load_text(block).servers) == ["collector"]
