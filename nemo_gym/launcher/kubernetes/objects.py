"""The Kubernetes objects of a run."""

from __future__ import annotations

import hashlib

from nemo_gym.launcher.kubernetes.collection import RESULTS, ROWS_FILE
from nemo_gym.launcher.kubernetes.network import network_policies
from nemo_gym.launcher.kubernetes.plan import COLLECTOR, CONFIG_FILE, HEAD_PORT, Part, Plan
from nemo_gym.launcher.kubernetes.pods import (
    Object,
    collect_words,
    component_labels,
    container,
    head_url,
    literal,
    metadata,
    pod_of,
    probes_of,
    resources_of,
    serve_words,
    token_and_variables,
    volumes_of,
    wait_words,
)
from nemo_gym.launcher.kubernetes.references import Needs

GRACE_S = 30
COLLECTOR_GRACE_S = 60
TRIES = 6
USAGE_ERROR = 2
"""Exit code for invalid arguments. A command with this exit code is not retried, because it would fail again."""
NOTHING = Needs({}, ())


def kubernetes_objects(plan: Plan) -> list[Object]:
    """Return all objects of a run, in the order in which they should be created."""
    deployments = [_deployment(plan, part) for part in plan.parts]
    collection = _collection(plan) if plan.collection else []
    return [
        config_map(plan),
        _head_service(plan),
        *network_policies(plan),
        *(_disruption_budget(plan, part) for part in plan.parts),
        *deployments,
        *collection,
    ]


def config_map(plan: Plan) -> Object:
    """Return the ConfigMap with the config, and with the rows if they are part of the manifest."""
    rows = plan.collection.rows if plan.collection else None
    data = {CONFIG_FILE: plan.config_text, **({ROWS_FILE: rows} if rows is not None else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(plan, "config"), "data": data}


def _head_service(plan: Plan) -> Object:
    port = {"name": "http", "protocol": "TCP", "port": HEAD_PORT, "targetPort": HEAD_PORT}
    spec = {
        # Publish the head server before it is ready. Servers join it through this Service, and only then is it ready.
        "publishNotReadyAddresses": True,
        "selector": component_labels(plan, plan.head.component),
        "ports": [port],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(plan, "head", "head"), "spec": spec}


def _disruption_budget(plan: Plan, part: Part) -> Object:
    # Allow the eviction of servers, because their rollouts are retried. Do not allow the eviction of the head server,
    # because a new head server starts a new run.
    spec = {
        "maxUnavailable": 0 if part is plan.head else 1,
        "selector": {"matchLabels": component_labels(plan, part.component)},
    }
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata(plan, part.component, part.component), "spec": spec,
    }  # fmt: skip


def _deployment(plan: Plan, part: Part) -> Object:
    is_head = part is plan.head
    own = [] if is_head else [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    address = f"{plan.settings.deployment}-head" if is_head else "$(POD_IP)"
    flag = "--head_server.advertised_host" if is_head else "--advertised-host"
    words = [*literal(serve_words(plan, part, head_url(plan))), flag, address]
    each = container(plan, "server", words, [*token_and_variables(plan, part.needs), *own], resources_of(part))
    each |= probes_of(part, is_head=is_head)
    annotations = {"checksum/config": hashlib.sha256(plan.config_text.encode()).hexdigest()}
    template = {
        "metadata": {"labels": metadata(plan, "", part.component)["labels"], "annotations": annotations},
        "spec": pod_of(plan, [each], volumes_of(plan, part.needs), GRACE_S),
    }
    spec = {
        "replicas": part.pods,
        # Stop the old head server before the new one starts, because two head servers would be two runs.
        **({"strategy": {"type": "Recreate"}} if is_head else {}),
        "selector": {"matchLabels": component_labels(plan, part.component)},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": metadata(plan, part.component, part.component), "spec": spec,
    }  # fmt: skip


def claim(plan: Plan) -> Object:
    """Return the PersistentVolumeClaim for the results."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": plan.settings.storage}}}
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(plan, "results"), "spec": spec
    }  # fmt: skip


def claim_name(plan: Plan) -> str:
    """Return the name of the PersistentVolumeClaim for the results: the user's choice, or a name for a new claim."""
    return plan.settings.results_claim or f"{plan.settings.deployment}-results"


def with_results(plan: Plan, pod: Object) -> Object:
    """Return a copy of a pod specification whose first container mounts the volume of the results."""
    first, *others = pod["containers"]
    mounts = [*first["volumeMounts"], {"name": "results", "mountPath": RESULTS}]
    volume = {"name": "results", "persistentVolumeClaim": {"claimName": claim_name(plan)}}
    return {
        **pod, "containers": [{**first, "volumeMounts": mounts}, *others], "volumes": [*pod["volumes"], volume]
    }  # fmt: skip


def _collection(plan: Plan) -> list[Object]:
    assert plan.collection is not None
    env = token_and_variables(plan, NOTHING)
    words = literal(collect_words(plan, f"{plan.settings.deployment}-head"))
    collector = container(plan, "collector", words, env, resources_of(None))
    wait = container(plan, "wait", wait_words(head_url(plan)), [], resources_of(None))
    volumes = volumes_of(plan, NOTHING, has_rows=plan.collection.rows is not None)
    pod = with_results(plan, pod_of(plan, [collector], volumes, COLLECTOR_GRACE_S))
    rules = [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": "collector", "operator": "In", "values": [USAGE_ERROR]},
        },
        # Do not count an eviction as a retry, because it is not a failure of the collection.
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    spec = {
        # Retries are cheap, because each resumes the collection and runs only rollouts that are not scored yet.
        "backoffLimit": TRIES,
        "podFailurePolicy": {"rules": rules},
        "template": {
            "metadata": {"labels": metadata(plan, "", COLLECTOR)["labels"]},
            "spec": {"restartPolicy": "Never", "initContainers": [wait], **pod},
        },
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(plan, COLLECTOR, COLLECTOR), "spec": spec}
    return [*([] if plan.settings.results_claim else [claim(plan)]), job]
