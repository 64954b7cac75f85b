"""The commands of a manifest's containers: as processes on several hosts, they collect every rollout."""

from __future__ import annotations

import json
from collections import Counter

import httpx
import pytest

from tests.cluster.hosts import PATIENCE_S, connected_hosts
from tests.cluster.runs import until
from tests.launcher.kubernetes.cases import containers_of, objects_of, of_kind, render
from tests.launcher.kubernetes.emulated import EmulatedCluster, Pod
from tests.launcher.kubernetes.policies import may_call

pytestmark = pytest.mark.slow

FOLDER = "tests/launcher/kubernetes"
CONFIG = ("--config", f"{FOLDER}/configs/serving.yaml", "--input", f"{FOLDER}/rows.jsonl")
AGENT = "short_answer_judge_simple_agent"
REPEATS = 60
SECRETS = {"nemo-gym-secrets": {"run_token": "token-of-a-manifest-test", "env.yaml": "judge_seed: 1\n"}}
SCALED = "nemo-gym-short-answer-judge"


def test_manifest_serves_and_collects_all_rollouts():
    done = render(*CONFIG, "--agent", AGENT, "--num-repeats", str(REPEATS), "--concurrency", "8")
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    deployments = of_kind(objects, "Deployment")
    templates = {name: each["spec"]["template"] for name, each in deployments.items()}
    # As after `kubectl scale`, one server has two pods.
    owed = [*templates.values(), templates[scaled_name(templates)]]
    (job,) = of_kind(objects, "Job").values()
    with connected_hosts(len(owed) + 1, "ngd") as hosts:
        cluster = EmulatedCluster(objects, SECRETS)
        servers = [cluster.place(template, host) for template, host in zip(owed, hosts, strict=False)]
        collector = cluster.place(job["spec"]["template"], hosts[-1])
        wait, collect = containers_of(collector.template)
        # Everything starts at the same time, as `kubectl apply` does it.
        waiting = cluster.start(collector, wait)
        for pod in servers:
            cluster.start(pod, pod.template["spec"]["containers"][0])
        assert waiting.wait(2 * PATIENCE_S) == 0, logs(hosts)
        assert "waiting for the run at" in (collector.host.folder / "wait.log").read_text()
        # The second pod may be ready later. The head server is last, because it then asks all others.
        for pod in reversed(servers):
            until(lambda pod=pod: is_ready(pod))

        # The first pod of the job dies, and the next one resumes.
        output = collector.host.folder / "results" / "rollouts.jsonl"
        first = cluster.start(collector, collect)
        until(lambda: first.poll() is not None or (output.exists() and output.read_bytes().count(b"\n") > 10))
        first.kill()
        first.wait(PATIENCE_S)
        assert cluster.start(collector, collect).wait(2 * PATIENCE_S) == 0, logs(hosts)
        results = [json.loads(line) for line in output.read_text().splitlines()]
        times = Counter((each["_ng_task_index"], each["_ng_rollout_index"]) for each in results)
        assert len(times) == 2 * REPEATS
        assert set(times.values()) == {1}
        log = (collector.host.folder / "collector.log").read_text()
        assert f"{2 * REPEATS} planned = {2 * REPEATS} scored" in log, log
        assert "+ 0 failed + 0 unresolved" in log

        # Calls between hosts are those that the policies allow, and each allowed path was used.
        policies = list(of_kind(objects, "NetworkPolicy").values())
        used = {
            (pod.host.ip, each.address, each.port)
            for pod in cluster.pods
            for each in pod.host.dialled()
            if not each.is_loopback and each.address != pod.host.ip
        }
        ports = {each["containerPort"] for pod in servers for each in pod.template["spec"]["containers"][0]["ports"]}
        allowed = {
            (pod.host.ip, other.host.ip, port)
            for pod in cluster.pods
            for other in servers
            for port in ports
            if pod is not other and may_call(policies, pod.labels, other.labels, port)
        }
        assert used == allowed
        for pod in cluster.pods:
            written = {path.name for path in (pod.host.folder / "config").iterdir()}
            assert written <= {"config.yaml", "env.yaml", "rows.jsonl"}


def is_ready(pod: Pod) -> bool:
    probe = pod.template["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    try:
        return httpx.get(f"http://{pod.host.ip}:{probe['port']}{probe['path']}").status_code == 200
    except httpx.TransportError:
        return False


def scaled_name(templates: dict[str, object]) -> str:
    (name,) = [each for each in templates if each == SCALED]
    return name


def logs(hosts) -> str:
    return "\n".join(f"{path}:\n{path.read_text()}" for host in hosts for path in host.folder.glob("*.log"))
