"""The number of processes of each server."""

from __future__ import annotations

import os

import pytest

from tests.launcher.replicas.remembering import remembering

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("replicas", "expected"), [("3", 3), pytest.param("auto", len(os.sched_getaffinity(0)), marks=pytest.mark.slow)]
)
def test_replicas_apply_unless_a_server_sets_its_own(workplace, replicas, expected):
    words = [remembering(workplace, "workers: 2"), workplace.environment()]
    command = workplace.start_servers(*words, f"+replicas={replicas}")
    counts = {name: len(set(server["pids"])) for name, server in command.servers.items()}
    assert counts == {"remembering": 2, "plain": expected, "agent": expected, "policy_model": expected}
    assert command.end().code == 0
