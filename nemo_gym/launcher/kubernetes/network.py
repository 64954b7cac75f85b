"""NetworkPolicies of a run: each part may reach only the parts that it calls."""

from __future__ import annotations

from typing import Any

from nemo_gym.launcher.kubernetes.plan import HEAD, Part, Plan
from nemo_gym.launcher.kubernetes.pods import collector_labels, component_labels, metadata

Object = dict[str, Any]
DNS_PORT = 53
NODE_LOCAL_DNS = "169.254.20.10/32"
"""The address of a node's DNS cache, if the cluster has one."""


def network_policies(plan: Plan) -> list[Object]:
    """Return a policy that limits the run's pods to DNS, and one per part that also allows the part's connections."""
    everyone = {"matchLabels": {"app.kubernetes.io/instance": plan.settings.deployment}}
    default = {"podSelector": everyone, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": [_dns()]}
    policies = [_policy(plan, "default", default)]
    policies += [_policy(plan, part.component, _rules_of(plan, part)) for part in plan.parts]
    if plan.collection is not None:
        agents = [part for part in plan.servers if part.is_agent]
        rules = {
            "podSelector": {"matchLabels": collector_labels(plan)},
            "policyTypes": ["Egress"],
            "egress": [_towards(plan, each) for each in (plan.head, *agents)],
        }
        policies.append(_policy(plan, "collect", rules))
    return policies


def _policy(plan: Plan, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(plan, name), "spec": spec
    }  # fmt: skip


def _rules_of(plan: Plan, part: Part) -> Object:
    if part is plan.head:
        callers = [component_labels(plan, each.component) for each in plan.servers] + [collector_labels(plan)]
        # Allow calls to all servers, because the head server probes them to find out whether the run is ready.
        called = list(plan.servers)
    else:
        callers = [component_labels(plan, each.component) for each in plan.servers if part.component in each.calls]
        callers = [component_labels(plan, HEAD), *callers, *([collector_labels(plan)] if part.is_agent else [])]
        called = [plan.head, *(each for each in plan.servers if each.component in part.calls)]
    egress = [_towards(plan, each) for each in called] + _endpoints(part)
    peers = [{"podSelector": {"matchLabels": labels}} for labels in callers]
    return {
        "podSelector": {"matchLabels": component_labels(plan, part.component)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": [_tcp(part.port)]}],
        "egress": egress,
    }


def _towards(plan: Plan, part: Part) -> Object:
    selector = {"matchLabels": component_labels(plan, part.component)}
    return {"to": [{"podSelector": selector}], "ports": [_tcp(part.port)]}


def _endpoints(part: Part) -> list[Object]:
    """Return the rule for the endpoints of a model server: any address, at the ports that the config names.

    If the ports are not known, allow all ports. If the server calls no endpoints, return no rule.
    """
    if part.endpoint_ports == ():
        return []
    to = [{"ipBlock": {"cidr": cidr}} for cidr in ("0.0.0.0/0", "::/0")]
    if part.endpoint_ports is None:
        return [{"to": to, "ports": [{"protocol": "TCP"}]}]
    return [{"to": to, "ports": [_tcp(port) for port in part.endpoint_ports]}]


def _dns() -> Object:
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    ports = [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]
    return {"to": [system, {"ipBlock": {"cidr": NODE_LOCAL_DNS}}], "ports": ports}


def _tcp(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
