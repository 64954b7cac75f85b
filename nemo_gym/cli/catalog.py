"""Commands that list the available environments, benchmarks and servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from nemo_gym.cli import outside, printing, tables
from nemo_gym.cli.options import Options
from nemo_gym.cli.selectors import environment_config
from nemo_gym.cli.settings import ListAgentsSettings, ListEnvironmentsSettings, ListSettings, SearchSettings
from nemo_gym.data import catalog
from nemo_gym.data.catalog import Component, Notice
from nemo_gym.errors import UsageError
from nemo_gym.text import closest, counted

TASKS_SHOWN = 20
READERS: dict[str, Callable[[Notice], list[Component]]] = {
    "environments": catalog.environments,
    "benchmarks": catalog.benchmarks,
    "resources-servers": lambda notice: catalog.servers("resources_servers", notice),
    "agents": lambda notice: catalog.servers("responses_api_agents", notice),
    "models": lambda notice: catalog.servers("responses_api_models", notice),
}
"""The functions that list the components, by kind."""


def benchmarks(words: list[str]) -> int:
    return _list(words, "benchmarks", program="ng_list_benchmarks")


def environments(words: list[str]) -> int:
    return _list(words, "environments", ListEnvironmentsSettings)


def resources_servers(words: list[str]) -> int:
    return _list(words, "resources-servers")


def agents(words: list[str]) -> int:
    return _list(words, "agents", ListAgentsSettings)


def models(words: list[str]) -> int:
    return _list(words, "models")


def search(words: list[str]) -> int:
    """Search the components of one kind for a word. The kind may precede the word; the default is environments."""
    bare = [word for word in words if not word.startswith(("-", "+", "~"))]
    kind = bare[0] if bare else ""
    rest = list(words)
    if kind in READERS:
        rest.remove(kind)
    else:
        if len(bare) > 1 and (meant := closest(kind, READERS)):
            raise UsageError(f"'{kind}' is not a kind of component. Did you mean '{meant}'? --help lists all kinds.")
        kind = "environments"
    summary = f"Search the {kind} for a word. For another kind: ng search [{'|'.join(READERS)}] QUERY."
    settings = Options("ng search", SearchSettings, summary, takes_config=False, named_by="query").settings(rest)
    found = catalog.matching(READERS[kind](printing.note), settings.query)
    _show(found, as_json=settings.as_json, if_none=f"no {kind.replace('-', ' ')} like '{settings.query}'")
    return 0


def _list(words: list[str], kind: str, model: type[ListSettings] = ListSettings, program: str = "") -> int:
    options = Options(program or f"ng list {kind}", model, takes_config=False, named_by="component_name")
    settings = options.settings(words)
    if isinstance(settings, ListEnvironmentsSettings) and settings.place is not None:
        return _show_tasks(settings.place, settings.split, as_json=settings.as_json)
    found = READERS[kind](printing.note)
    what = kind.replace("-", " ")
    if settings.component_name is not None:
        component = catalog.named(found, settings.component_name, what)
        if settings.as_json:
            printing.say_json(_rows([component]))
        else:
            tables.show(tables.component(component))
        return 0
    if isinstance(settings, ListAgentsSettings) and settings.environment is not None:
        return _show_fits(settings.environment, found, as_json=settings.as_json)
    if isinstance(settings, ListEnvironmentsSettings):
        found = [
            each for each in found if settings.kind in (None, each.kind) and settings.domain in (None, each.domain)
        ]
    _show(found, as_json=settings.as_json, if_none=f"no {what}")
    return 0


def _show_tasks(place: str, split: str | None, *, as_json: bool) -> int:
    """List the tasks that the environment of another framework has now."""
    tasks = list(outside.tasks_of(place, split, printing.note))
    if as_json:
        printing.say_json(tasks)
        return 0
    tables.show(tables.tasks(tasks[:TASKS_SHOWN]))
    more = "" if len(tasks) <= TASKS_SHOWN else f"; --json lists them all, and the table the first {TASKS_SHOWN}"
    printing.say(f"{counted(len(tasks), 'task')}{more}")
    return 0


def _show_fits(environment: str, agents: list[Component], *, as_json: bool) -> int:
    from nemo_gym.contract.pairing import fits

    found = fits(environment_config(environment), agents)
    if as_json:
        rows = [{**each._asdict(), "fits": not each.problems} for each in found]
        printing.say_json(rows)
    else:
        tables.show(tables.fits(found))
    return 0


def _show(found: list[Component], *, as_json: bool, if_none: str) -> None:
    if as_json:
        printing.say_json(_rows(found))
    elif found:
        are_benchmarks = all(each.kind == "benchmark" for each in found)
        tables.show(tables.benchmarks(found) if are_benchmarks else tables.components(found))
    else:
        printing.say(if_none)


def _rows(components: list[Component]) -> list[Mapping[str, object]]:
    return [{**asdict(each), "path": str(each.path)} for each in components]
