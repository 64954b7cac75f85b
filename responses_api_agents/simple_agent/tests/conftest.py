"""The environment, created for each test."""

import pytest

from nemo_gym.testing import make_server
from responses_api_agents.simple_agent.tests.arena import Arena


@pytest.fixture
def arena():
    return make_server(Arena, name="arena", cookies_seen=[], rollouts_seen=[])
