"""A cluster that runs the containers of a manifest as processes on hosts of this machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.hosts import Host
from tests.launcher.kubernetes.cases import Object, of_kind

BIN = Path(sys.executable).parent
MOUNTED = ("/config", "/results")


class Pod(NamedTuple):
    """A pod on a host of its own."""

    host: Host
    template: Object

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.template["metadata"]["labels"]
        return labels


class EmulatedCluster:
    """The objects of a manifest, a Secret, and the pods that run."""

    def __init__(self, objects: list[Object], secrets: Mapping[str, Mapping[str, str]]) -> None:
        self._objects = objects
        self._secrets = secrets
        self.pods: list[Pod] = []

    def place(self, template: Object, host: Host) -> Pod:
        """Give a pod a host, with the files of its volumes."""
        pod = Pod(host, template)
        self.pods.append(pod)
        for volume in template["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                data = self._data_of(source)
                for item in next(iter(source.values()))["items"]:
                    path = host.folder / volume["name"] / item["path"]
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(data[item["key"]])
            if "persistentVolumeClaim" in volume:
                (host.folder / volume["name"]).mkdir(exist_ok=True)
        return pod

    def start(self, pod: Pod, container: Object) -> subprocess.Popen[Any]:
        """Start a container of a pod. Its output goes to `<container>.log`."""
        env = {each["name"]: self._value_of(each["valueFrom"], pod) for each in container.get("env", [])}
        words = [self._word(word, env, pod) for word in container["args"]]
        program = BIN / words[0].replace("python3", Path(sys.executable).name)
        with (pod.host.folder / f"{container['name']}.log").open("a") as log:
            return pod.host.popen(
                program, *words[1:], env=env, cwd=pod.host.folder / "config", stdout=log, stderr=log
            )  # fmt: skip

    def at(self, address: str) -> Pod | None:
        """Return the pod with an address."""
        return next((pod for pod in self.pods if pod.host.ip == address), None)

    def _data_of(self, source: Object) -> Mapping[str, str]:
        if "secret" in source:
            return self._secrets[source["secret"]["name"]]
        data: dict[str, str] = of_kind(self._objects, "ConfigMap")[source["configMap"]["name"]]["data"]
        return data

    def _value_of(self, given: Object, pod: Pod) -> str:
        if "secretKeyRef" in given:
            return self._secrets[given["secretKeyRef"]["name"]][given["secretKeyRef"]["key"]]
        assert given == {"fieldRef": {"fieldPath": "status.podIP"}}
        return pod.host.ip

    def _word(self, word: str, env: Mapping[str, str], pod: Pod) -> str:
        word = re.sub(r"(?<!\$)\$\((\w+)\)", lambda found: env[found[1]], word).replace("$$(", "$(")
        for mounted in MOUNTED:
            if word.startswith(f"{mounted}/"):
                word = f"{pod.host.folder}{word}"
        for name, service in of_kind(self._objects, "Service").items():
            selector = service["spec"]["selector"].items()
            (target,) = [each for each in self.pods if selector <= each.labels.items()]
            word = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", target.host.ip, word)
        return word
