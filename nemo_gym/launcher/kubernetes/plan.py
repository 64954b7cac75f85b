"""The plan of a run in containers: the servers, with their ports, resources and calls to each other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nemo_gym.config.checks import called_by
from nemo_gym.config.endpoints import endpoint_parts
from nemo_gym.config.hosts import is_any_address, is_loopback
from nemo_gym.config.loading import load
from nemo_gym.config.masking import is_secret_key, mask_text, raw_yaml
from nemo_gym.config.models import DEFAULT_HEAD_SERVER_PORT, RunConfig, ServerConfig
from nemo_gym.config.overrides import Override
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.settings import AGENT_TIER, MODEL_TIER
from nemo_gym.config.sources import CONFIG_PATHS, gather
from nemo_gym.config.tree import Node, Path, dotted, node_of, walk
from nemo_gym.errors import ConfigError, UsageError
from nemo_gym.launcher.kubernetes.collection import COLLECTION_KEYS, Collection, Spelling, collection_of
from nemo_gym.launcher.kubernetes.references import Needs, needs_of
from nemo_gym.launcher.kubernetes.settings import DeploySettings
from nemo_gym.paths import INSTALL_ROOT

HEAD = "head"
COLLECTOR = "collect"
"""`HEAD` and `COLLECTOR` are the components that are not servers of the config."""
HEAD_PORT = DEFAULT_HEAD_SERVER_PORT
LONGEST_COMPONENT = 25
"""Maximum length of a component, so that the names of objects and pods fit into labels of 63 characters."""
CONFIG_FOLDER = "/config"
"""The working folder of all containers, in which they find the config and env.yaml."""
CONFIG_FILE = "config.yaml"
RESERVED_COMPONENTS = (HEAD, COLLECTOR, "default")
ADDRESS_KEYS = ("host", "advertised_host", "advertised_port")
SET_BY_MANIFEST = {
    "only", "join", CONFIG_PATHS, "replicas", "advertised_host", "launcher", "nemo_gym_log_dir",
    "port_range_low", "port_range_high", "use_absolute_ip", "ray_head_node_address",
}  # fmt: skip
"""Top-level keys that the containers' config omits, because they belong to one machine or to the manifest."""

_INTERPOLATION = re.compile(r"\$\{[^${},]*(?:,([^${}]*))?\}")
"""A regex for an interpolation. The group is the default value, if there is one."""
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic|token)\b")


class Part(NamedTuple):
    """One server of the run, or the head server."""

    server: str
    """The server's name in the config; 'none' for the head server."""
    component: str
    """The server's name as a DNS label."""
    port: int
    pods: int = 1
    processes: int = 1
    """The number of processes in each pod."""
    cpus: float | None = None
    """Cores of all processes of a pod; None if the config does not set them."""
    memory: int | None = None
    """Bytes of memory of all processes of a pod; None if the config does not set them."""
    gpus: int = 0
    """GPUs of all processes of a pod."""
    calls: tuple[str, ...] = ()
    """The components that this part calls, besides the head server."""
    needs: Needs = Needs({}, ())
    is_agent: bool = False
    endpoint_ports: tuple[int, ...] | None = ()
    """The ports of endpoints outside the run; None if they are not known."""


class Plan(NamedTuple):
    """The data from which the manifests of one run are rendered."""

    settings: DeploySettings
    command: str
    """The command line that generated the manifest."""
    run: RunConfig
    """The configuration whose servers the containers start."""
    config_text: str
    head: Part
    servers: tuple[Part, ...]
    collection: Collection | None
    needs: Needs
    """The needs of the whole run, for targets in which one container starts all servers."""
    notes: tuple[str, ...]

    @property
    def secret(self) -> str:
        """The name of the Secret that the user creates."""
        return self.settings.secret or f"{self.settings.deployment}-secrets"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The head server and all servers."""
        return (self.head, *self.servers)


def plan_of(
    files: Sequence[str], overrides: Sequence[Override], settings: DeploySettings, command: str, spelled: Spelling
) -> Plan:
    """Return the plan of a configuration, without reading env.yaml. Raise `ConfigError` if it cannot be deployed.

    `command` is the command line that renders the manifest, and `spelled` returns overrides as flags of the collection
    command.
    """
    sources = gather(files, overrides, None, None, skip_dotenv=True)
    check_no_secrets(sources.tree)
    _check(sources.tree, overrides)
    # Remove the token, because the containers get it from the Secret.
    without_token = ["~run_token"] if "run_token" in sources.tree.mapping else []
    # Start no servers here, so that values that only env.yaml or the cluster defines may be missing.
    run = load(files, [*overrides, *without_token, "++only=none"], skip_dotenv=True, require_servers=True)
    tree = node_of(run.raw, next(iter(run.servers.values())).origins[""])
    components = _components(run.servers)
    servers = tuple(
        _part(server, components, tree, run, HEAD_PORT + index)
        for index, server in enumerate(run.servers.values(), start=1)
    )
    own = {key: value for key, value in run.raw.items() if key not in SET_BY_MANIFEST | COLLECTION_KEYS}
    notes = [*_loopback_endpoints(run)] if settings.target != "kuberay" else []
    outside = [name for name, each in run.servers.items() if not each.folder.is_relative_to(INSTALL_ROOT)]
    notes += [f"note: the image must contain the folder of {name}, which is not in nemo_gym" for name in outside]
    return Plan(
        settings=settings,
        command=command,
        run=run,
        config_text=raw_yaml(run.model_copy(update={"raw": _for_containers(own, run, servers, settings)})),
        head=Part("none", HEAD, HEAD_PORT),
        servers=servers,
        collection=collection_of(run, settings, spelled),
        needs=needs_of(tree, node_of(own, tree.origin)),
        notes=tuple(notes),
    )


def _check(tree: Node, overrides: Sequence[Override]) -> None:
    keys = {dotted(each.path) for each in overrides}
    if given := sorted(keys & {"only", "join"}):
        raise UsageError(f"{given[0]}: the manifest decides which container starts which server. Remove this setting.")
    token = tree.mapping.get("run_token")
    if token is not None and token.value is False:
        raise ConfigError(
            f"{token.origin}: run_token: false opens the run to everyone, but the containers of a run recognise "
            f"each other by the run token. Remove run_token: false."
        )
    if (tls := tree.mapping.get("tls")) is not None:
        raise ConfigError(
            f"{tls.origin}: tls: manifests do not give certificates to the containers. Remove tls, and encrypt "
            "the cluster's network, for example with a service mesh."
        )


def _part(server: ServerConfig, components: Mapping[str, str], tree: Node, run: RunConfig, port: int) -> Part:
    processes = server.num_workers or 1
    replicas = run.settings.replicas
    is_alone = server.settings.get("expose_tools_over_mcp") is True
    pods = 1 if replicas == "auto" or server.num_workers or is_alone else replicas
    given, gpus = server.ray.model_fields_set, server.ray.num_gpus * processes
    if gpus != int(gpus):
        raise ConfigError(
            f"{server.origins.get('ray.num_gpus')}: {server.name}: ray.num_gpus is {server.ray.num_gpus:g}, but a "
            "container gets whole GPUs. Set it to a whole number."
        )
    block = _block(run.raw, server)
    return Part(
        server=server.name,
        component=components[server.name],
        port=port,
        pods=pods,
        processes=processes,
        cpus=server.ray.num_cpus * processes if "num_cpus" in given else None,
        memory=server.ray.memory * processes if server.ray.memory else None,
        gpus=int(gpus),
        calls=tuple(sorted(components[called.name] for called in called_by(server, run))),
        needs=needs_of(tree, node_of(block, tree.origin), *_sandbox(block, tree)),
        is_agent=server.type == AGENT_TIER,
        endpoint_ports=_endpoint_ports(server, block, tree) if server.type == MODEL_TIER else (),
    )


def _block(raw: Mapping[str, Any], server: ServerConfig) -> dict[str, Any]:
    block: dict[str, Any] = raw[server.name][server.type][server.implementation]
    return block


def _sandbox(block: Mapping[str, Any], tree: Node) -> list[Node]:
    """Return a list with the run's sandbox settings; empty if the server does not use them."""
    return [tree.mapping["sandbox"]] if "sandbox_provider" in block and "sandbox" in tree.mapping else []


def _endpoint_ports(server: ServerConfig, block: Mapping[str, Any], tree: Node) -> tuple[int, ...] | None:
    """Return the ports of the endpoints that a model server calls; None if the config does not define all of them."""
    ports = set[int]()
    for key, written in block.items():
        if not key.endswith("base_url") or not written:
            continue
        needs = needs_of(tree, node_of(written, tree.origin))
        given = server.settings.get(key)
        if needs.variables or needs.open_keys or not given:
            return None
        for url in [given] if isinstance(given, str) else given:
            parts = endpoint_parts(url, server, key)
            ports.add(parts.port or (443 if parts.scheme == "https" else 80))
    return tuple(sorted(ports))


def _loopback_endpoints(run: RunConfig) -> Iterator[str]:
    """Yield a note for each endpoint at a loopback address. Such an address means the container itself."""
    for server in run.servers_of(MODEL_TIER):
        for key, given in server.settings.items():
            urls = given if isinstance(given, list) else [given]
            is_endpoint = key.endswith("base_url")
            if is_endpoint and any(is_loopback(endpoint_parts(url, server, key).hostname or "") for url in urls):
                yield (
                    f"note: {server.name}: {key} is {given}, which in a container is the container itself. Set an "
                    "address that the containers can reach"
                )


def _components(names: Sequence[str] | Mapping[str, object]) -> dict[str, str]:
    """Return a short and unique DNS label for each server."""
    found: dict[str, str] = {}
    for name in names:
        label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "server"
        if len(label) > LONGEST_COMPONENT or label in (*RESERVED_COMPONENTS, *found.values()):
            suffix = hashlib.sha256(name.encode()).hexdigest()[:5]
            label = f"{label[: LONGEST_COMPONENT - 6].rstrip('-')}-{suffix}"
        found[name] = label
    return found


def _for_containers(
    own: Mapping[str, Any], run: RunConfig, servers: Sequence[Part], settings: DeploySettings
) -> dict[str, Any]:
    """Return the config of all containers: every server listens on all addresses, at a port of its own."""
    given = str(own.get("default_host") or "")
    changed: dict[str, Any] = {
        **own,
        "default_host": given if is_any_address(given) else "0.0.0.0",
        # Use folders in /tmp, because nothing else is writable in a server's container.
        "cache_dir": "/tmp/cache",
        "results_dir": "/tmp/results",
    }
    if settings.target == "kuberay":
        # Omit the head server's address and the default host, because Ray chooses the nodes.
        changed.pop("head_server", None)
        changed.pop("default_host", None)
        return changed | ({"replicas": run.raw["replicas"]} if "replicas" in run.raw else {})
    changed["head_server"] = {"port": HEAD_PORT}
    for part in servers:
        server = run.servers[part.server]
        block = {key: value for key, value in _block(own, server).items() if key not in ADDRESS_KEYS}
        changed[part.server] = {server.type: {server.implementation: {**block, "port": part.port}}}
    return changed


def check_no_secrets(tree: Node) -> None:
    """Raise `ConfigError` if a value is a secret. Everyone who sees the Kubernetes manifest could read the secret."""
    for path, node in walk(tree):
        if _is_secret(path, node.value):
            raise ConfigError(
                f"{node.origin}: {dotted(path)} is a secret, which everyone who sees the manifest could read. Move it "
                "to env.yaml, from which you create the Secret, or write ${oc.env:NAME} and add NAME to the Secret."
            )


def _is_secret(path: Path, value: object) -> bool:
    if isinstance(value, dict | list) or value is None:
        return False
    is_secret = any(is_secret_key(str(key)) for key in path)
    if not isinstance(value, str):
        return is_secret and bool(SecretValues.of({"secret": value}))
    # Check the default value of an interpolation, too, because it is part of the config.
    written = [_INTERPOLATION.sub(" ", value), *_INTERPOLATION.findall(value)]
    if is_secret:
        return any(SecretValues.of({"secret": _SCHEME.sub("", text).strip()}) for text in written)
    return any(mask_text(text) != text for text in written)
