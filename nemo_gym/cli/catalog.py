"""Commands that list the available environments, benchmarks and servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import orjson

from nemo_gym import config
from nemo_gym.cli import running, tables
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import ListEnvironmentsSettings, ListSettings, SearchSettings
from nemo_gym.data import catalog
from nemo_gym.data.catalog import Component, Notice


def benchmarks(words: list[str]) -> int:
    """List the benchmarks."""
    return _list(words, "ng_list_benchmarks", "benchmarks", catalog.benchmarks)


def environments(words: list[str]) -> int:
    """List the environments that are ready to run."""
    return _list(words, "ng list environments", "environments", catalog.environments, ListEnvironmentsSettings)


def resources_servers(words: list[str]) -> int:
    """List the resources servers."""
    return _list(
        words,
        "ng list resources-servers",
        "resources servers",
        lambda notice: catalog.servers("resources_servers", notice),
    )


def agents(words: list[str]) -> int:
    """List the agent servers."""
    return _list(words, "ng list agents", "agents", lambda notice: catalog.servers("responses_api_agents", notice))


def models(words: list[str]) -> int:
    """List the model servers."""
    return _list(words, "ng list models", "models", lambda notice: catalog.servers("responses_api_models", notice))


SEARCHED: dict[str, Callable[[Notice], list[Component]]] = {
    "environments": catalog.environments,
    "benchmarks": catalog.benchmarks,
    "resources-servers": lambda notice: catalog.servers("resources_servers", notice),
    "agents": lambda notice: catalog.servers("responses_api_agents", notice),
    "models": lambda notice: catalog.servers("responses_api_models", notice),
}


def search(words: list[str]) -> int:
    """Search components of one kind for a word; the kind may precede it."""
    kind = next((word for word in words if not word.startswith(("-", "+", "~"))), "")
    rest = list(words)
    if kind in SEARCHED:
        rest.remove(kind)
    what = kind if kind in SEARCHED else "environments"
    options = Options(
        "ng search",
        f"Search the {what} for a word, or another kind: ng search [{'|'.join(SEARCHED)}] QUERY.",
        SearchSettings,
        takes_config=False,
        named_by="query",
    )
    line = options.read(rest)
    settings = settings_from(SearchSettings, config.load(line.paths, line.overrides, skip_dotenv=True).plain)
    found = catalog.matching(SEARCHED[what](running.note), settings.query)
    _show(found, as_json=settings.as_json, if_none=f"no {what.replace('-', ' ')} like '{settings.query}'")
    return 0


def _list(
    words: list[str],
    program: str,
    what: str,
    read: Callable[[Notice], list[Component]],
    model: type[ListSettings] = ListSettings,
) -> int:
    options = Options(program, f"List the {what}.", model, takes_config=False, named_by="component_name")
    line = options.read(words)
    settings = settings_from(model, config.load(line.paths, line.overrides, skip_dotenv=True).plain)
    found = read(running.note)
    if settings.component_name is not None:
        component = catalog.named(found, settings.component_name, what)
        if settings.as_json:
            running.say(_json([component]))
        else:
            tables.console().print(tables.component(component))
        return 0
    if isinstance(settings, ListEnvironmentsSettings):
        found = [
            each for each in found if settings.kind in (None, each.kind) and settings.domain in (None, each.domain)
        ]
    _show(found, as_json=settings.as_json, if_none=f"no {what}")
    return 0


def _show(found: list[Component], *, as_json: bool, if_none: str) -> None:
    if as_json:
        running.say(_json(found))
    elif found:
        tables.console().print(tables.components(found))
    else:
        running.say(if_none)


def _json(components: list[Component]) -> str:
    rows = [{**asdict(each), "path": str(each.path)} for each in components]
    return orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode()
