"""The RayJob of a run, for clusters with the KubeRay operator."""

from __future__ import annotations

import math
import shlex
from typing import NamedTuple

from nemo_gym.launcher.kubernetes.objects import COLLECTOR_GRACE_S, claim, config_map, with_results
from nemo_gym.launcher.kubernetes.plan import CONFIG_FILE, CONFIG_FOLDER, Part, Plan
from nemo_gym.launcher.kubernetes.pods import (
    MEMORY,
    Object,
    as_bytes,
    as_cpus,
    container,
    metadata,
    pod_of,
    resources_of,
    token_and_variables,
    volumes_of,
)
from nemo_gym.launcher.kubernetes.references import Needs

RAY_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}
NODE_MEMORY = 2 * 2**30
"""Bytes of memory that Ray's own processes need on a node."""
OBJECT_STORE = {"object-store-memory": "100000000"}
"""The size of Ray's object store in bytes. It is small because rollouts do not pass through the store."""
TRIES = 6


def kuberay_objects(plan: Plan) -> list[Object]:
    """Return the ConfigMap, the PersistentVolumeClaim, and the RayJob that starts the servers and collects rollouts.

    If the user names an existing PersistentVolumeClaim, no new one is returned.
    """
    return [config_map(plan), *([] if plan.settings.results_claim else [claim(plan)]), _ray_job(plan)]


def entrypoint(plan: Plan) -> str:
    """Return the shell command that runs on the head node."""
    assert plan.collection is not None
    words = ["ng", "eval", "run", "--config", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--launcher", "ray"]
    # Change to the config folder, because the command reads env.yaml from its working folder.
    return f"cd {CONFIG_FOLDER} && {shlex.join([*words, *plan.collection.words])}"


def _ray_job(plan: Plan) -> Object:
    cluster = {
        "rayVersion": plan.settings.ray_version,
        "headGroupSpec": {
            # The head node only collects, so Ray must not start servers on it.
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0", **OBJECT_STORE},
            "template": _head_template(plan),
        },
        "workerGroupSpecs": [
            {
                "groupName": "servers",
                "replicas": plan.settings.ray_workers,
                "minReplicas": plan.settings.ray_workers,
                "maxReplicas": plan.settings.ray_workers,
                "rayStartParams": OBJECT_STORE,
                "template": _worker_template(plan),
            }
        ],
    }
    spec = {
        "entrypoint": entrypoint(plan),
        # Retrying is safe, because each retry starts a new cluster and resumes the collection.
        "backoffLimit": TRIES,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "submitterPodTemplate": _submitter_template(plan),
        "rayClusterSpec": cluster,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata(plan, "collect", "collect"),
        "spec": spec,
    }


def _template(plan: Plan, component: str, pod: Object) -> Object:
    return {"metadata": {"labels": metadata(plan, "", component)["labels"]}, "spec": pod}


def _ray_container(plan: Plan, name: str, env: list[Object], resources: Object) -> Object:
    # Omit the command, because KubeRay sets it.
    return {key: value for key, value in container(plan, name, [], env, resources).items() if key != "args"}


def _head_template(plan: Plan) -> Object:
    amounts = {"cpu": "2", "memory": as_bytes(2 * NODE_MEMORY)}
    env = token_and_variables(plan, plan.needs)
    head = _ray_container(plan, "ray-head", env, {"requests": amounts, "limits": amounts})
    head["ports"] = [{"name": name, "containerPort": port} for name, port in RAY_PORTS.items()]
    return _template(
        plan, "head", with_results(plan, pod_of(plan, [head], volumes_of(plan, plan.needs), COLLECTOR_GRACE_S))
    )


def _worker_template(plan: Plan) -> Object:
    cpus, memory, gpus = map(max, zip(*_shares(plan), strict=True))
    amounts: Object = {"cpu": as_cpus(cpus), "memory": as_bytes(memory + NODE_MEMORY)}
    amounts |= {"nvidia.com/gpu": gpus} if gpus else {}
    worker = _ray_container(plan, "ray-worker", [], {"requests": amounts, "limits": amounts})
    nothing = Needs({}, ())
    return _template(plan, "servers", pod_of(plan, [worker], volumes_of(plan, nothing), COLLECTOR_GRACE_S))


def _shares(plan: Plan) -> list[_Share]:
    """Return the share of each server process, and a last one with the average per node.

    A node with the maximum of each number is large enough for any single process, and for an equal share of the total.
    """
    each = [_per_process(part) for part in plan.servers for _ in range(part.pods * part.processes)]
    total = [math.ceil(sum(amounts) / plan.settings.ray_workers) for amounts in zip(*each, strict=True)]
    return [share._replace(cpus=math.ceil(share.cpus)) for share in each] + [_Share(*total)]


class _Share(NamedTuple):
    """The cores, bytes and GPUs that Ray reserves for one process of a server."""

    cpus: float
    memory: int
    gpus: int


def _per_process(part: Part) -> _Share:
    cpus = 1.0 if part.cpus is None else part.cpus / part.processes
    memory = part.memory or MEMORY * part.processes
    return _Share(cpus, memory // part.processes, part.gpus // part.processes)


def _submitter_template(plan: Plan) -> Object:
    submitter = _ray_container(plan, "ray-job-submitter", [], resources_of(None))
    pod = pod_of(plan, [submitter], volumes_of(plan, Needs({}, ())), COLLECTOR_GRACE_S)
    return _template(plan, "submitter", {"restartPolicy": "Never", **pod})
