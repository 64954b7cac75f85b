"""Load a run's configuration: read its sources, apply directives, resolve interpolations, and check the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from nemo_gym.config import checks, ports
from nemo_gym.config.access import PROTECTING_KEYS, check_access
from nemo_gym.config.allowed_pairings import accepted, unsupported_pairings
from nemo_gym.config.checks import references_of
from nemo_gym.config.explain import explain_validation, near_misses
from nemo_gym.config.foreign import follow_directives, with_environments_as_agents
from nemo_gym.config.interpolation import Resolver, Unresolved
from nemo_gym.config.models import WRITTEN_ADDRESSES, HeadConfig, Origin, RunConfig, ServerConfig
from nemo_gym.config.overrides import Override, is_typed
from nemo_gym.config.pairing import with_other_agent
from nemo_gym.config.parts import part_of
from nemo_gym.config.removed import check_nothing_removed
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.servers import (
    Block,
    RunDefaults,
    find_blocks,
    join_dummy_models,
    notes_of_overlays,
    parse_server,
    stop_at_almost_servers,
)
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SAMPLE_MODEL
from nemo_gym.config.sources import EnvYaml, gather
from nemo_gym.config.tls import Tls
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.config.tree import Node, origins, plain
from nemo_gym.errors import ConfigError
from nemo_gym.text import counted


def load(
    paths: Sequence[str | Path] = (),
    overrides: Sequence[Override | str] = (),
    *,
    initial: Mapping[str, object] | None = None,
    dotenv_path: Path | None = None,
    skip_dotenv: bool = False,
    require_servers: bool = False,
    stand_in: Mapping[str, object] | None = None,
    needs_variables: bool = True,
) -> RunConfig:
    """Read a configuration from all its sources into one frozen value.

    Later sources win: the files of `paths` with their includes, `env.yaml`, `initial`, and `overrides`, which are
    parsed flags, or texts such as `+a.b=1` or `~c`. `dotenv_path` is read instead of the `env.yaml` of the search
    roots. `stand_in` has the lowest priority, and is ignored if another source defines `policy_model`. If
    `needs_variables` is false, environment variables of servers need not be set, because no server is started.
    Raise a subclass of ConfigError with the file, the line, the key and advice.
    """
    sources = gather(paths, overrides, initial, dotenv_path, skip_dotenv, stand_in=stand_in)
    paired = with_other_agent(follow_directives(sources.tree))
    tree = paired.tree
    check_nothing_removed(tree)
    checks.check_nothing_unset(tree)
    tree = with_environments_as_agents(join_dummy_models(tree))
    blocks, almost, overlays = find_blocks(tree)
    resolver = Resolver(tree)
    values = _plain_values(tree, resolver, {each.name for found in (blocks, overlays) for each in found}, sources.env)
    places = origins(tree)
    settings = _settings(values, places)
    check_access(settings, values, places)
    tls = _tls(settings, places)
    defaults = RunDefaults.of(settings, tls)

    servers = [block for block in blocks if block.tier != ENVIRONMENT_SERVERS]
    part = part_of(settings, [block.name for block in servers], tls, places)
    built = _build_all(servers, resolver, defaults, part.names, needs_variables=needs_variables)
    checks.check_all_resolved(built.unresolved, sources.env)
    stop_at_almost_servers([*almost, *built.problems], is_error=settings.error_on_almost_servers)

    environments = [block for block in blocks if block.tier == ENVIRONMENT_SERVERS]
    aliases = checks.aliases_of({block.name: block.node for block in environments}, built.servers)
    checks.check_references(built.servers, aliases)
    head = part.head or _head(tree, settings, defaults, tls)
    ports.check_fixed_ports(built.servers.values(), head, places.get("head_server"))
    if require_servers:
        checks.check_some_server(built.servers, sources.files)
    run = RunConfig(
        servers=built.servers,
        head=head,
        aliases=aliases,
        paired_agents=paired.added,
        replaced_agents=paired.replaced,
        settings=settings,
        plain=values if tls is None else {**values, "tls": tls.model_dump(mode="json", exclude_none=True)},
        raw=plain(tree),
        origins={key: places[key] for key in WRITTEN_ADDRESSES if key in places},
        config_paths=sources.files,
        only=part.names,
        joins=part.head is not None,
        tls=tls,
        notes=(
            *notes_of_defaults(built.servers, sources.surroundings),
            *notes_of_overlays(overlays, built.servers.values()),
        ),
    )
    return accepted(run, unsupported_pairings(built.servers))


def _plain_values(tree: Node, resolver: Resolver, servers: set[str], env: EnvYaml) -> dict[str, object]:
    """Return the top-level values that are not servers. Leave out those that cannot be resolved.

    Raise `ConfigInterpolationError` if one of them was given on the command line, or restricts access.
    """
    values: dict[str, object] = {}
    needed = list[Unresolved]()
    for key, node in tree.mapping.items():
        if str(key) in servers:
            continue
        value, unresolved = resolver.resolve((key,))
        if not unresolved:
            values[str(key)] = value
        elif key in PROTECTING_KEYS or is_typed(node.origin):
            needed += unresolved
    checks.check_all_resolved(needed, env)
    return values


class _Built(NamedTuple):
    servers: dict[str, ServerConfig]
    problems: list[str]
    unresolved: list[Unresolved]


def _build_all(
    blocks: Sequence[Block],
    resolver: Resolver,
    defaults: RunDefaults,
    names: frozenset[str] | None,
    *,
    needs_variables: bool,
) -> _Built:
    """Build all valid servers and collect the problems of the invalid ones.

    `names` are the servers that this machine starts. None means all servers.
    """
    built = _Built({}, [], [])
    others = [block for block in blocks if block.node.origin.line]
    for block in blocks:
        is_elsewhere = names is not None and block.name not in names
        parsed = parse_server(
            block, resolver, defaults, others, is_elsewhere=is_elsewhere, needs_variables=needs_variables
        )
        built.problems.extend(parsed.problems)
        built.unresolved.extend([] if is_elsewhere else parsed.unresolved)
        if parsed.server:
            built.servers[block.name] = parsed.server
    return built


def _settings(values: Mapping[str, object], places: Mapping[str, Origin]) -> RunSettings:
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        known = TokenCaptureConfig.model_fields
        raise ConfigError(explain_validation(error, block="", origins=places, known=known)) from error


def _tls(settings: RunSettings, places: Mapping[str, Origin]) -> Tls | None:
    """Return the checked `tls` block with absolute paths, because servers run in other folders."""
    if settings.tls is None:
        return None
    # Import the module here, because most configurations do not have certificates.
    from nemo_gym.config.certificates import tls_of

    return tls_of(settings.tls, places)


def _head(tree: Node, settings: RunSettings, defaults: RunDefaults, tls: Tls | None) -> HeadConfig:
    host, advertised = defaults.host, defaults.advertised_host
    if settings.head_server is None:
        return HeadConfig(host=host, advertised_host=advertised, tls=tls)
    places = origins(tree.mapping["head_server"])
    fields = {
        key: value
        for key, value in settings.head_server.items()
        if value is not None and key not in ("port_is_fixed", "tls")
    }
    if misspelt := near_misses(HeadConfig, fields, block="head_server", origins=places):
        raise ConfigError("\n".join(misspelt))
    try:
        return HeadConfig.model_validate(
            {"host": host, "advertised_host": advertised, **fields, "port_is_fixed": "port" in fields, "tls": tls}
        )
    except ValidationError as error:
        raise ConfigError(explain_validation(error, block="head_server", origins=places)) from error


def notes_of_defaults(servers: Mapping[str, ServerConfig], surroundings: Mapping[str, frozenset[str]]) -> list[str]:
    """Return a note for each model server that uses `sample_model` and is called by servers of unrelated files.

    `surroundings` maps each included file to its related files (see `Sources.surroundings`).
    """
    notes = []
    for model in servers.values():
        file = model.origins[""].file
        if model.implementation != SAMPLE_MODEL or file not in surroundings:
            continue
        users = [
            server.name
            for server in servers.values()
            if model.name in references_of(server) and server.origins[""].file not in surroundings[file]
        ]
        if users:
            others = f" and {counted(len(users) - 1, 'other server')}" if len(users) > 1 else ""
            use = "use" if others else "uses"
            notes.append(
                f"no model given: {users[0]}{others} {use} the random policy of {file}, which another file includes "
                "as its default. Add a model, for example with --model-type."
            )
    return notes
