"""Rows of several environments in one stream: shares, epochs, agents, invalid shares, and a run that takes them."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from nemo_gym.errors import DataError, UsageError
from nemo_gym.training import SyncTrainingClient, mixed
from tests.each_case import each_case

pytestmark = pytest.mark.slow

VLLM = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
AGENT = """
{name}:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: plain}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""


def rows_of(name, size):
    return [{"task": f"{name} {number}"} for number in range(size)]


def sources_of(shares, size=3):
    return {name: rows_of(name, size) for name in shares}


def names_of(rows):
    return [row["agent_ref"]["name"] for row in rows]


@each_case(
    "shares",
    [
        {"a": 1},
        {"a": 0.5, "b": 0.5},
        {"a": 0.5, "b": 0.3, "c": 0.2},
        {"a": 1, "b": 1, "c": 1},
        {"a": 0.1, "b": 0.1, "c": 0.7, "d": 0.1},
        {"a": 1, "b": 2, "c": 4, "d": 8, "e": 16},
        {"a": 0.98, "b": 0.01, "c": 0.01},
        {"a": 1e-3, "b": 3, "c": 3.0001, "d": 0.777},
    ],
)
def test_shares_hold_after_every_row(shares):
    taken, total = Counter(), sum(shares.values())
    for number, name in enumerate(islice(names_of_endless(mixed(sources_of(shares), shares)), 2000), start=1):
        taken[name] += 1
        for each, share in shares.items():
            assert abs(taken[each] - number * share / total) < 1 + 1e-9


def names_of_endless(rows):
    return (row["agent_ref"]["name"] for row in rows)


def test_whole_shares_are_exact_in_every_batch():
    shares = {"a": 0.5, "b": 0.3, "c": 0.2}
    rows = mixed(sources_of(shares), shares)
    for _ in range(50):
        assert Counter(names_of(islice(rows, 10))) == {"a": 5, "b": 3, "c": 2}


def test_every_epoch_has_all_rows_in_another_order():
    rows = mixed({"a": rows_of("a", 20), "b": rows_of("b", 7)}, {"a": 1, "b": 1})
    of_a = [row["task"] for row in islice(rows, 120) if row["agent_ref"]["name"] == "a"]
    epochs = [of_a[at : at + 20] for at in (0, 20, 40)]
    assert all(sorted(epoch) == sorted(row["task"] for row in rows_of("a", 20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_seed_determines_the_rows():
    shares = {"a": 2, "b": 1}
    first, again, other = (list(islice(mixed(sources_of(shares, 9), shares, seed), 60)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    # A trainer that resumes leaves out the rows that it has used.
    assert list(islice(mixed(sources_of(shares, 9), shares, 1), 40, 60)) == first[40:]


def test_row_keeps_its_own_agent():
    given = [{"agent_ref": {"name": "x"}}, {}]
    rows = list(islice(mixed({"a": given}, {"a": 1}), 2))
    assert sorted(names_of(rows)) == ["a", "x"]
    assert given == [{"agent_ref": {"name": "x"}}, {}]


def test_source_without_share_is_not_read():
    def unread():
        raise AssertionError("this source is not used")
        yield

    assert set(names_of(islice(mixed({"a": rows_of("a", 2), "b": unread()}, {"a": 1, "b": 0}), 9))) == {"a"}


@each_case(
    ("shares", "message"),
    [
        ({"mcqa": 1, "countr": 1}, r"shares: 'countr' is not one of the sources. Did you mean 'counter'\?"),
        ({"mcqa": 1}, r"shares: source 'counter' has no share. Add one; 0 leaves the source out."),
        ({"mcqa": 1, "counter": -0.5}, r"shares\['counter'\] is -0.5. A share must be a finite number of at least 0."),
        ({"mcqa": 1, "counter": float("nan")}, r"shares\['counter'\] is nan"),
        ({"mcqa": 1, "counter": float("inf")}, r"shares\['counter'\] is inf"),
        ({"mcqa": 1, "counter": "half"}, r"shares\['counter'\] is 'half'"),
        ({"mcqa": 0, "counter": 0.0}, r"shares: all 2 shares are 0. At least one must be positive."),
        ({}, r"shares: source 'mcqa' has no share"),
    ],
)
def test_invalid_shares_are_explained(shares, message):
    with pytest.raises(UsageError, match=message):
        mixed({"mcqa": rows_of("q", 2), "counter": rows_of("c", 2)}, shares)


def test_source_without_rows_is_named():
    with pytest.raises(DataError, match=r"sources\['b'\] has no rows. Add rows, or set its share to 0."):
        mixed({"a": rows_of("a", 1), "b": []}, {"a": 1, "b": 1})


def test_mixed_rows_are_run_by_their_agents(shared_workplace, endpoint):
    shared_workplace.environment("plain")
    config = shared_workplace.folder / "resources_servers/plain/configs/plain.yaml"
    agents = ["mcqa_simple_agent", "example_session_state_mgmt_simple_agent"]
    config.write_text(config.read_text() + "".join(AGENT.format(name=name) for name in agents))
    command = shared_workplace.start_servers(
        f"+config_paths=[{config},{VLLM}]", f"+policy_base_url={endpoint}/v1", "+policy_api_key=none",
        "+policy_model_name=echo",
    )  # fmt: skip
    row = {"responses_create_params": {"input": "hm"}}
    rows, trained = mixed({agent: [row] * 3 for agent in agents}, dict.fromkeys(agents, 0.5)), Counter()
    with SyncTrainingClient(command.head) as client:
        # The rows are endless, so the loop is left early.
        for group in client.rollouts(rows, repeats=8):
            assert all({*rollout.trajectory().mask} == {1} for rollout in group.rollouts)
            trained[group.row["agent_ref"]["name"]] += 1
            if len(trained) == len(agents) or trained.total() == 500:
                break
    assert trained.keys() == set(agents)
    command.end()
