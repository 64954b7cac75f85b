"""The objects of the golden manifests: valid, complete, and consistent with each other."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.launcher.kubernetes.cases import COMPOSE, KUBERAY, KUBERNETES, containers_of, golden, of_kind, pods_of

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

ALL = [case.name for case in (*KUBERNETES, *KUBERAY)]
ON_KUBERNETES = [case.name for case in KUBERNETES]
ON_KUBERAY = [case.name for case in KUBERAY]
VERSION = "1.37"
RAY_JOB_FIELDS = {
    "entrypoint": str, "backoffLimit": int, "shutdownAfterJobFinishes": bool, "ttlSecondsAfterFinished": int,
    "submitterPodTemplate": dict, "rayClusterSpec": dict,
}  # fmt: skip
RAY_CLUSTER_FIELDS = {"rayVersion": str, "headGroupSpec": dict, "workerGroupSpecs": list}
WORKER_GROUP_FIELDS = {
    "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": dict, "template": dict
}  # fmt: skip
"""Fields of KubeRay's custom resources, whose schema no package has."""


@pytest.mark.parametrize("name", ALL)
def test_objects_follow_the_schemas_of_kubernetes(name):
    objects = golden(name)
    for each in objects:
        if each["kind"] != "RayJob":
            kubernetes_validate.validate(each, VERSION, strict=True)
    for pod in pods_of(objects).values():
        whole = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **pod["metadata"]},
            "spec": pod["spec"],
        }
        kubernetes_validate.validate(whole, VERSION, strict=True)


def test_schema_check_rejects_a_wrong_field():
    config_map, *_ = golden("endpoint")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**config_map, "dta": {}}, VERSION, strict=True)


@pytest.mark.parametrize("name", ON_KUBERAY)
def test_rayjob_has_documented_fields(name):
    (job,) = of_kind(golden(name), "RayJob").values()
    assert job["apiVersion"] == "ray.io/v1"
    cluster = job["spec"]["rayClusterSpec"]
    assert_fields(job["spec"], RAY_JOB_FIELDS)
    assert_fields(cluster, RAY_CLUSTER_FIELDS)
    assert_fields(cluster["headGroupSpec"], {"rayStartParams": dict, "template": dict})
    for group in cluster["workerGroupSpecs"]:
        assert_fields(group, WORKER_GROUP_FIELDS)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert all(isinstance(value, str) for value in cluster["headGroupSpec"]["rayStartParams"].values())
    assert " --launcher ray " in job["spec"]["entrypoint"]
    assert job["spec"]["entrypoint"].startswith("cd /config && ng eval run ")
    assert " --resume" in job["spec"]["entrypoint"]


def assert_fields(found: dict[str, Any], known: dict[str, type]) -> None:
    assert {key: type(value) for key, value in found.items()} == known


@pytest.mark.parametrize("name", ALL)
def test_names_and_labels_fit(name):
    label = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
    objects = golden(name)
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(named)) == len(named)
    assert all(label.fullmatch(each) for _, each in named)
    # A Deployment adds two hashes to the names of its pods.
    assert all(len(each) <= 63 - 17 for _, each in named if each != "")
    labels = [value for each in objects for value in each["metadata"]["labels"].values()]
    assert all(label.fullmatch(value) for value in labels)
    namespaces = {each["metadata"].get("namespace") for each in objects}
    assert namespaces == ({"evaluations"} if name == "judge" else {None})


@pytest.mark.parametrize("name", ON_KUBERNETES)
def test_selectors_match_pods(name):
    objects = golden(name)
    pods = {each: pod["metadata"]["labels"] for each, pod in pods_of(objects).items()}
    for deployment, each in of_kind(objects, "Deployment").items():
        matching = [pod for pod, labels in pods.items() if is_selected(labels, each["spec"]["selector"])]
        assert matching == [deployment]
    for budget, each in of_kind(objects, "PodDisruptionBudget").items():
        assert [pod for pod, labels in pods.items() if is_selected(labels, each["spec"]["selector"])] == [budget]
    for service, each in of_kind(objects, "Service").items():
        selector = {"matchLabels": each["spec"]["selector"]}
        assert [pod for pod, labels in pods.items() if is_selected(labels, selector)] == [service]
    for each in of_kind(objects, "NetworkPolicy").values():
        assert any(is_selected(labels, each["spec"]["podSelector"]) for labels in pods.values())


def is_selected(labels: dict[str, str], selector: dict[str, Any]) -> bool:
    return selector["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", ON_KUBERNETES)
def test_joined_addresses_are_services(name):
    objects = golden(name)
    services = {
        f"{each}:{port['port']}": (spec["spec"]["selector"], port["targetPort"])
        for each, spec in of_kind(objects, "Service").items()
        for port in spec["spec"]["ports"]
    }
    addresses = set()
    for pod_name, pod in pods_of(objects).items():
        for container in containers_of(pod):
            words = container["args"]
            found = [word.removeprefix("http://") for word in words if word.startswith("http://")]
            given = dict(pairwise(words))
            if "--head_server.host" in given:
                found.append(f"{given['--head_server.host']}:{given['--head_server.port']}")
            assert bool(found) == (not pod_name.endswith("-head")), pod_name
            addresses |= set(found)
    assert addresses == set(services)
    head = next(pod for each, pod in pods_of(objects).items() if each.endswith("-head"))
    for selector, port in services.values():
        assert selector.items() <= head["metadata"]["labels"].items()
        assert port in [each["containerPort"] for each in head["spec"]["containers"][0]["ports"]]
    # Servers join before the head server is ready.
    assert all(each["spec"]["publishNotReadyAddresses"] for each in of_kind(objects, "Service").values())


@pytest.mark.parametrize("name", ALL)
def test_references_exist_or_are_the_users(name):
    objects = golden(name)
    config_maps = {each: set(spec["data"]) for each, spec in of_kind(objects, "ConfigMap").items()}
    claims = set(of_kind(objects, "PersistentVolumeClaim"))
    header = next(line for line in golden_text(name).splitlines() if line.startswith("# Needs the Secret "))
    for pod in pods_of(objects).values():
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        for volume in volumes.values():
            for source in volume.get("projected", {}).get("sources", []):
                if "configMap" in source:
                    assert {item["key"] for item in source["configMap"]["items"]} <= config_maps[
                        source["configMap"]["name"]
                    ]
                else:
                    assert source["secret"]["name"] in header
                    assert all(item["key"] in header for item in source["secret"]["items"])
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert claim in claims or (name == "judge" and claim == "shared")
        for container in containers_of(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            for variable in container.get("env", []):
                if "secretKeyRef" in variable["valueFrom"]:
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert reference["name"] in header
                    assert (
                        f"{reference['key']} (optional)" in header
                        if reference.get("optional")
                        else reference["key"] in header
                    )
    assert "kind: Secret" not in golden_text(name)


def golden_text(name: str) -> str:
    return next(case for case in (*KUBERNETES, *KUBERAY, *COMPOSE) if case.name == name).golden.read_text()


@pytest.mark.parametrize("name", ALL)
def test_pods_have_few_rights(name):
    for pod in pods_of(golden(name)).values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in containers_of(pod):
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert (
                {"cpu", "memory"}
                <= container["resources"]["requests"].keys()
                <= container["resources"]["limits"].keys()
            )


@pytest.mark.parametrize("name", ON_KUBERNETES)
def test_probes_use_the_ports_of_the_config(name):
    objects = golden(name)
    (config_map,) = of_kind(objects, "ConfigMap").values()
    config = yaml.safe_load(config_map["data"]["config.yaml"])
    for each, deployment in of_kind(objects, "Deployment").items():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        server = container["args"][container["args"].index("--only") + 1]
        port = config["head_server"]["port"] if server == "none" else port_of(config[server])
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert {probe["port"] for probe in probes.values()} == {port}, each
        assert [probe["path"] for probe in probes.values()] == ["/livez", "/livez", "/readyz"]


def port_of(block: dict[str, Any]) -> int:
    ((_, implementations),) = block.items()
    ((_, settings),) = implementations.items()
    assert "host" not in settings
    return settings["port"]


def test_only_servers_that_need_it_see_env_yaml():
    pods = pods_of(golden("endpoint"))
    assert [name for name, pod in pods.items() if "env.yaml" in str(pod)] == ["nemo-gym-policy-model"]
    judged = pods_of(golden("judge"))
    assert [name for name, pod in judged.items() if "JUDGE_KEY" in str(pod)] == ["judged-judge-model"]
    assert [name for name, pod in judged.items() if "env.yaml" in str(pod)] == ["judged-policy-model"]


def test_replicas_and_workers_become_pods_and_processes():
    deployments = of_kind(golden("replicas"), "Deployment")
    pods = {name.removeprefix("nemo-gym-"): each["spec"]["replicas"] for name, each in deployments.items()}
    assert pods == {"head": 1, "mcqa": 1, "mcqa-simple-agent": 2, "policy-model": 2}
    (config_map,) = of_kind(golden("replicas"), "ConfigMap").values()
    config = yaml.safe_load(config_map["data"]["config.yaml"])
    assert "replicas" not in config
    assert "run_token" not in config
    assert config["mcqa"]["resources_servers"]["mcqa"]["workers"] == 3

    def amounts(name: str) -> Any:
        return deployments[f"nemo-gym-{name}"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]

    assert amounts("policy-model") == {"cpu": "1500m", "memory": "4096Mi", "nvidia.com/gpu": 1}
    assert amounts("mcqa") == {"cpu": "6", "memory": "6144Mi"}


def test_rays_nodes_have_room_for_all_processes():
    (job,) = of_kind(golden("kuberay_replicas"), "RayJob").values()
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    # Three verifiers and two agents with a core each, two models with 1.5 cores and a GPU each.
    assert group["replicas"] * int(worker["resources"]["limits"]["cpu"]) >= 8
    assert group["replicas"] * worker["resources"]["limits"]["nvidia.com/gpu"] == 2


@pytest.mark.parametrize("name", [*ON_KUBERNETES, *(case.name for case in COMPOSE)])
def test_commands_have_flags_only(name):
    objects = golden(name)
    if "services" in objects[0]:
        commands = [service["command"] for service in objects[0]["services"].values()]
    else:
        commands = [container["args"] for pod in pods_of(objects).values() for container in containers_of(pod)]
    assert commands
    assert [word for words in commands for word in words if word.startswith("+")] == []


def test_collection_resumes_and_keeps_its_results():
    objects = golden("judge")
    (job,) = of_kind(objects, "Job").values()
    spec = job["spec"]["template"]["spec"]
    (collector,) = spec["containers"]
    words = collector["args"]
    assert words[0] == "ng_collect_rollouts"
    assert "--resume" in words
    output = words[words.index("--output") + 1]
    mounts = {mount["mountPath"]: mount["name"] for mount in collector["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes[mounts[output.rpartition("/")[0]]]["persistentVolumeClaim"]["claimName"] == "shared"
    assert words[words.index("--num-repeats") + 1] == "2"
    assert words[words.index("--responses-create-params") + 1] == '{"temperature":0.5}'
    assert job["spec"]["backoffLimit"] > 0
    assert spec["restartPolicy"] == "Never"
    (config_map,) = of_kind(objects, "ConfigMap").values()
    assert config_map["data"]["rows.jsonl"].count("\n") == 2
    assert words[words.index("--input") + 1] == "/config/rows.jsonl"


@pytest.mark.parametrize("case", COMPOSE, ids=lambda case: case.name)
def test_compose_starts_the_same_servers(case):
    (compose,) = golden(case.name)
    on_kubernetes = pods_of(golden(case.name.removeprefix("compose_")))
    services = compose["services"]
    prefix = next(iter(on_kubernetes)).removesuffix("head")
    assert [name.removeprefix(prefix) for name in on_kubernetes] == list(services)
    for service, pod in zip(services.values(), on_kubernetes.values(), strict=True):
        words, theirs = service["command"], pod["spec"]["containers"][0]["args"]
        only = "--only"
        if only in words:
            assert words[: words.index(only) + 2] == theirs[: theirs.index(only) + 2]
        joined = [word for word in words if word.startswith("http://")]
        assert all(url.removeprefix("http://").partition(":")[0] in services for url in joined)
        assert set(service.get("depends_on", {})) <= set(services)
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    secrets = {each["source"] for service in services.values() for each in service.get("secrets", [])}
    assert secrets == set(compose.get("secrets", {}))
