"""Each planted hole in a grader is found by name, and honest graders have none."""

import pytest

from nemo_gym.contract.attacking import attack_in_child
from nemo_gym.contract.attacks import all_attacks
from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.tasks import Task
from tests.contract.holes import HOLES, HONEST, write_hole

pytestmark = pytest.mark.slow

BY_CHANCE = {attack.name for attack in all_attacks() if attack.right_by_chance}


def exploits_of(hole, root):
    with open_environment(write_hole(root, hole)) as environment:
        # One task is enough, except for an attack that may be right by chance.
        tasks = [] if hole.found in BY_CHANCE else [Task("row 1", environment.rows[0])]
        findings = attack_in_child(environment, tasks)
    return {finding.promise: finding.detail for finding in findings if not finding.is_kept}


@pytest.mark.parametrize("name", HOLES)
def test_planted_hole_is_found_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert HOLES[name].found in exploits_of(HOLES[name], tmp_path)


@pytest.mark.parametrize("name", HONEST)
def test_honest_grader_has_no_finding(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert exploits_of(HONEST[name], tmp_path) == {}
