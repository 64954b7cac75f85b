"""NetworkPolicies allow the connections that a config needs, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.launcher.kubernetes.cases import KUBERNETES, containers_of, golden, of_kind, pods_of
from tests.launcher.kubernetes.policies import may_call, may_call_outside

NAMES = [case.name for case in KUBERNETES]
HEAD_PORT = 11000


def references_in(value: Any) -> Iterator[str]:
    """Yield the names of the servers to which a block refers."""
    if isinstance(value, dict):
        if set(value) == {"type", "name"} and value["type"] in TIERS:
            yield value["name"]
        for child in value.values():
            yield from references_in(child)
    elif isinstance(value, list):
        for item in value:
            yield from references_in(item)


TIERS = ("resources_servers", "responses_api_agents", "responses_api_models")


def needed_calls(name: str) -> set[tuple[str, str]]:
    """Return the connections that the config needs, as names of servers, 'head' and 'collect'."""
    config = config_of(name)
    servers = {key: block for key, block in config.items() if isinstance(block, dict) and set(block) & set(TIERS)}
    agents = [key for key, block in servers.items() if "responses_api_agents" in block]
    calls = {(key, other) for key, block in servers.items() for other in references_in(block)}
    calls |= {(key, "head") for key in servers}
    # The readiness of the head server is that of all servers.
    calls |= {("head", key) for key in servers}
    if of_kind(golden(name), "Job"):
        calls |= {("collect", each) for each in ("head", *agents)}
    return calls


def config_of(name: str) -> dict[str, Any]:
    (config_map,) = of_kind(golden(name), "ConfigMap").values()
    config: dict[str, Any] = yaml.safe_load(config_map["data"]["config.yaml"])
    return config


def pods_by_server(name: str) -> dict[str, dict[str, str]]:
    """Return the labels of each pod, by the name of its server, 'head' or 'collect'."""
    found = {}
    for pod in pods_of(golden(name)).values():
        words = containers_of(pod)[-1]["args"]
        server = words[words.index("--only") + 1] if "--only" in words else "collect"
        found["head" if server == "none" else server] = pod["metadata"]["labels"]
    return found


def port_of(name: str, server: str) -> int:
    if server in ("head", "collect"):
        return HEAD_PORT
    ((_, tier),) = config_of(name)[server].items()
    ((_, settings),) = tier.items()
    return int(settings["port"])


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_needed_calls_are_possible(name):
    policies = list(of_kind(golden(name), "NetworkPolicy").values())
    pods = pods_by_server(name)
    ports = [port_of(name, server) for server in pods]
    possible = {
        (source, target, port)
        for source, labels in pods.items()
        for target, others in pods.items()
        for port in (*ports, 22)
        if source != target and may_call(policies, labels, others, port)
    }
    assert possible == {(source, target, port_of(name, target)) for source, target in needed_calls(name)}


@pytest.mark.parametrize("name", NAMES)
def test_strangers_can_call_nothing(name):
    policies = list(of_kind(golden(name), "NetworkPolicy").values())
    for server, labels in pods_by_server(name).items():
        port = port_of(name, server)
        assert not may_call(policies, {"app": "stranger"}, labels, port)
        assert not may_call(policies, {**labels, "app.kubernetes.io/instance": "another"}, labels, port)


def test_model_servers_reach_only_their_endpoints():
    policies = list(of_kind(golden("judge"), "NetworkPolicy").values())
    ports = {
        server: [port for port in (443, 8000, 8001, 22) if may_call_outside(policies, labels, port)]
        for server, labels in pods_by_server("judge").items()
    }
    nothing: list[int] = []
    assert ports == {
        "head": nothing, "short_answer_judge": nothing, "short_answer_judge_simple_agent": nothing, "collect": nothing,
        "policy_model": [443], "judge_model": [8000, 8001],
    }  # fmt: skip
    # The address of this endpoint is in env.yaml, so its port is not known.
    open_policies = list(of_kind(golden("endpoint"), "NetworkPolicy").values())
    assert may_call_outside(open_policies, pods_by_server("endpoint")["policy_model"], 8443)
    closed = list(of_kind(golden("replicas"), "NetworkPolicy").values())
    assert not may_call_outside(closed, pods_by_server("replicas")["policy_model"], 443)
