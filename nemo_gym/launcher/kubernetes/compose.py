"""The Compose file of a run."""

from __future__ import annotations

from typing import Any

from nemo_gym.launcher.kubernetes.collection import RESULTS, ROWS_FILE
from nemo_gym.launcher.kubernetes.plan import COLLECTOR, CONFIG_FILE, CONFIG_FOLDER, HEAD, HEAD_PORT, Part, Plan
from nemo_gym.launcher.kubernetes.pods import (
    ENV_YAML,
    MOST_CPUS,
    MOST_MEMORY,
    TOKEN_VARIABLE,
    USER,
    Object,
    collect_words,
    serve_words,
)
from nemo_gym.launcher.kubernetes.references import Needs

HEAD_URL = f"http://{HEAD}:{HEAD_PORT}"
NOTHING = Needs({}, ())


def compose_file(plan: Plan) -> Object:
    """Return the Compose file. The config and env.yaml are files next to it."""
    services = {part.component: _server(plan, part) for part in plan.parts}
    uses_env_yaml = any(part.needs.open_keys for part in plan.parts)
    volumes: Object = {}
    if plan.collection is not None:
        services[COLLECTOR] = _collector(plan)
        volumes = {"volumes": {"results": {}}}
    secrets = {"secrets": {ENV_YAML: {"file": f"./{ENV_YAML}"}}} if uses_env_yaml else {}
    return {"name": plan.settings.deployment, "services": services, **volumes, **secrets}


def _server(plan: Plan, part: Part) -> Object:
    found = _service(plan, serve_words(plan, part, HEAD_URL), part, part.needs)
    found["restart"] = "unless-stopped"
    # Check only that the head server is alive. It is not ready until the other servers join, but they wait for this
    # check.
    path = "livez" if part is plan.head else "readyz"
    check = ["CMD", "python3", "-I", "/opt/nemo_gym/bin/healthy.py", f"http://127.0.0.1:{part.port}/{path}"]
    found["healthcheck"] = {"test": check, "interval": "2s", "timeout": "5s", "start_period": "600s", "retries": 5}
    if part is not plan.head:
        found["depends_on"] = {HEAD: {"condition": "service_healthy"}}
    return found


def _collector(plan: Plan) -> Object:
    found = _service(plan, collect_words(plan, HEAD), None, NOTHING)
    found["volumes"].append(f"results:{RESULTS}")
    if plan.collection is not None and plan.collection.rows is not None:
        found["volumes"].append(f"./{ROWS_FILE}:{CONFIG_FOLDER}/{ROWS_FILE}:ro")
    found |= {"healthcheck": {"disable": True}, "restart": "on-failure:6", "stop_grace_period": "60s"}
    found["depends_on"] = {part.component: {"condition": "service_healthy"} for part in plan.parts}
    return found


def _service(plan: Plan, words: list[str], part: Part | None, needs: Needs) -> Object:
    variables = {TOKEN_VARIABLE: f"${{{TOKEN_VARIABLE}:?set it to a secret of at least 16 characters}}"}
    variables |= {
        name: f"${{{name}:-}}" if optional else f"${{{name}:?}}" for name, optional in needs.variables.items()
    }
    found: Object = {
        "image": plan.settings.image,
        # Escape the dollar sign, because Compose replaces ${NAME}.
        "command": [word.replace("$", "$$") for word in words],
        "working_dir": CONFIG_FOLDER,
        "user": f"{USER}:{USER}",
        "environment": variables,
        "volumes": [f"./{CONFIG_FILE}:{CONFIG_FOLDER}/{CONFIG_FILE}:ro"],
    }
    if needs.open_keys:
        found["secrets"] = [{"source": ENV_YAML, "target": f"{CONFIG_FOLDER}/{ENV_YAML}"}]
    return found | {
        "read_only": True,
        "tmpfs": ["/tmp:mode=1777,size=1g"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": "30s",
        "deploy": _deploy(part),
    }


def _deploy(part: Part | None) -> Object:
    processes = part.processes if part else 1
    cpus = part.cpus if part and part.cpus else MOST_CPUS * processes
    memory = part.memory if part and part.memory else MOST_MEMORY * processes
    resources: dict[str, Any] = {"limits": {"cpus": f"{cpus:g}", "memory": str(memory), "pids": 512}}
    if part and part.gpus:
        devices = [{"driver": "nvidia", "count": part.gpus, "capabilities": ["gpu"]}]
        resources["reservations"] = {"devices": devices}
    return {"replicas": part.pods if part else 1, "resources": resources}
