"""The meaning of NetworkPolicies: which pod may call which."""

from __future__ import annotations

from typing import Any

Labels = dict[str, str]
Object = dict[str, Any]


def may_call(policies: list[Object], source: Labels, target: Labels, port: int) -> bool:
    """Return whether a pod may open a TCP connection to another pod of its namespace."""
    leaves = _allows(policies, source, "Egress", "egress", "to", target, port)
    return leaves and _allows(policies, target, "Ingress", "ingress", "from", source, port)


def may_call_outside(policies: list[Object], source: Labels, port: int) -> bool:
    """Return whether a pod may open a TCP connection to any address outside the cluster."""
    for spec in _selecting(policies, source, "Egress"):
        for rule in spec.get("egress", []):
            blocks = {peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer}
            if "0.0.0.0/0" in blocks and _has_port(rule, port):
                return True
    return not _selecting(policies, source, "Egress")


def _allows(policies: list[Object], pod: Labels, kind: str, rules: str, peers: str, other: Labels, port: int) -> bool:
    specs = _selecting(policies, pod, kind)
    if not specs:
        return True
    return any(
        _has_port(rule, port) and any(_is_peer(peer, other) for peer in rule[peers])
        for spec in specs
        for rule in spec.get(rules, [])
    )


def _selecting(policies: list[Object], pod: Labels, kind: str) -> list[Object]:
    specs = [each["spec"] for each in policies]
    return [
        spec
        for spec in specs
        if kind in spec["policyTypes"] and spec["podSelector"]["matchLabels"].items() <= pod.items()
    ]


def _is_peer(peer: Object, labels: Labels) -> bool:
    # Pods of another namespace, and addresses, are not pods of this run.
    if "namespaceSelector" in peer or "podSelector" not in peer:
        return False
    return peer["podSelector"]["matchLabels"].items() <= labels.items()


def _has_port(rule: Object, port: int) -> bool:
    return any(each["protocol"] == "TCP" and each.get("port", port) == port for each in rule["ports"])
