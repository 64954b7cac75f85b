"""The containers of a run: their commands, volumes, probes, resources and rights."""

from __future__ import annotations

from typing import Any

from nemo_gym.launcher.kubernetes.collection import ROWS_FILE
from nemo_gym.launcher.kubernetes.plan import COLLECTOR, CONFIG_FILE, CONFIG_FOLDER, HEAD_PORT, Part, Plan
from nemo_gym.launcher.kubernetes.references import Needs

Object = dict[str, Any]
USER = 10001
"""The id of the user and group that the image defines."""
ENV_YAML = "env.yaml"
TOKEN_VARIABLE = "NEMO_GYM_RUN_TOKEN"
CPUS, MOST_CPUS = 0.5, 2.0
MEMORY, MOST_MEMORY = 512 * 2**20, 2 * 2**30
"""Reserved and maximum cores and bytes of memory per process, for a server whose `ray` block does not set them."""
JOIN_TIMEOUT_S = 900


def head_url(plan: Plan) -> str:
    """Return the URL of the head server's Service."""
    return f"http://{plan.settings.deployment}-head:{HEAD_PORT}"


def serve_words(plan: Plan, part: Part, url: str) -> list[str]:
    """Return the command for the container of a server or of the head server."""
    words = ["ng_run", "--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--only", part.server]
    return words if part is plan.head else [*words, "--join", url]


def collect_words(plan: Plan, host: str) -> list[str]:
    """Return the command of the collector's container."""
    assert plan.collection is not None
    head = ["--head_server.host", host, "--head_server.port", str(HEAD_PORT)]
    return ["ng_collect_rollouts", *plan.collection.words, *head]


def wait_words(url: str) -> list[str]:
    """Return the command that waits until all servers of a run answer."""
    return ["python3", "-m", "nemo_gym.launcher.kubernetes.ready", url, str(JOIN_TIMEOUT_S)]


def literal(words: list[str]) -> list[str]:
    """Escape `$(NAME)`, which Kubernetes would replace, so that these arguments reach the command unchanged."""
    return [word.replace("$(", "$$(") for word in words]


def component_labels(plan: Plan, component: str) -> dict[str, str]:
    """Return the labels that select the pods of one component."""
    return {"app.kubernetes.io/instance": plan.settings.deployment, "app.kubernetes.io/component": component}


def metadata(plan: Plan, name: str, component: str | None = None) -> Object:
    labels = {"app.kubernetes.io/name": "nemo-gym", "app.kubernetes.io/instance": plan.settings.deployment}
    labels |= {"app.kubernetes.io/component": component} if component else {}
    namespace = {"namespace": plan.settings.namespace} if plan.settings.namespace else {}
    return {"name": f"{plan.settings.deployment}-{name}", **namespace, "labels": labels}


def pod_of(plan: Plan, containers: list[Object], volumes: list[Object], grace_s: int) -> Object:
    """Return the part of a pod's specification that all pods of a run share."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes,
    }  # fmt: skip


def container(plan: Plan, name: str, words: list[str], env: list[Object], resources: Object) -> Object:
    """Return a container with a read-only root file system and without privileges."""
    return {
        "name": name,
        "image": plan.settings.image,
        "args": words,
        "workingDir": CONFIG_FOLDER,
        **({"env": env} if env else {}),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }  # fmt: skip


def volumes_of(plan: Plan, needs: Needs, *, has_rows: bool = False) -> list[Object]:
    """Return the volumes of a pod: /tmp and the config, with env.yaml if the container needs values from it."""
    items = [CONFIG_FILE, *([ROWS_FILE] if has_rows else [])]
    sources: list[Object] = [
        {"configMap": {"name": f"{plan.settings.deployment}-config", "items": [{"key": k, "path": k} for k in items]}}
    ]
    if needs.open_keys:
        sources.append({"secret": {"name": plan.secret, "items": [{"key": ENV_YAML, "path": ENV_YAML}]}})
    return [
        {"name": "config", "projected": {"defaultMode": 0o440, "sources": sources}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
    ]


def token_and_variables(plan: Plan, needs: Needs) -> list[Object]:
    """Return a container's environment variables: the run token, and the variables that the config refers to."""
    return [
        _from_secret(plan, TOKEN_VARIABLE, "run_token", may_be_missing=False),
        *(_from_secret(plan, name, name, may_be_missing=optional) for name, optional in needs.variables.items()),
    ]


def _from_secret(plan: Plan, name: str, key: str, *, may_be_missing: bool) -> Object:
    optional = {"optional": True} if may_be_missing else {}
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": plan.secret, "key": key, **optional}}}


def resources_of(part: Part | None) -> Object:
    """Return the resource requests and limits of a container. `part` is None if the container runs no server."""
    processes = part.processes if part else 1
    cpus, most_cpus = (part.cpus, part.cpus) if part and part.cpus else (CPUS * processes, MOST_CPUS * processes)
    memory = part.memory if part and part.memory else None
    requests = {"cpu": as_cpus(cpus), "memory": as_bytes(memory or MEMORY * processes)}
    limits = {"cpu": as_cpus(most_cpus), "memory": as_bytes(memory or MOST_MEMORY * processes)}
    gpus = {"nvidia.com/gpu": part.gpus} if part and part.gpus else {}
    return {"requests": requests | gpus, "limits": limits | gpus}


def as_cpus(cpus: float) -> str:
    """Return a number of cores in Kubernetes notation, such as `2` or `500m`."""
    return f"{cpus:g}" if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def as_bytes(count: int) -> str:
    """Return a number of bytes in Kubernetes notation, such as `512Mi`."""
    return f"{count // 2**20}Mi" if count % 2**20 == 0 else str(count)


def probes_of(part: Part, *, is_head: bool) -> Object:
    """Return the probes of a container. A model server that loads its weights has ten minutes to start."""

    def at(path: str, period_s: int, failures: int) -> Object:
        check = {"path": path, "port": part.port}
        return {"httpGet": check, "periodSeconds": period_s, "timeoutSeconds": 5, "failureThreshold": failures}

    return {
        "ports": [{"name": "http", "containerPort": part.port}],
        "startupProbe": at("/livez", 2, 300),
        "livenessProbe": at("/livez", 10, 6),
        # Probe the head server less often, because each of these probes makes it check all servers.
        "readinessProbe": at("/readyz", 10 if is_head else 5, 2),
    }


def collector_labels(plan: Plan) -> dict[str, str]:
    return component_labels(plan, COLLECTOR)
