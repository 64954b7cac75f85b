"""Lists of environments, benchmarks, agents and model servers, from their configs and READMEs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nemo_gym.config.foreign import follow_directives
from nemo_gym.config.settings import AGENT_TIER, RESOURCES_TIER, ServerType
from nemo_gym.config.sources import gather
from nemo_gym.config.tree import plain
from nemo_gym.contract.environment import open_configs
from nemo_gym.data import catalog
from nemo_gym.data.catalog import Component
from nemo_gym.jsonl import JsonObject, read_raw_lines, read_rows
from nemo_gym.servers.resources import listed_tools
from nemo_gym.text import counted
from pages.markdown import code, summary_of, table, title_of, toctree

USERS = "user_simulation_agent"
STEP_BY_STEP, ONE_REQUEST, MULTI_TURN = "step by step", "one request", "conversation with a simulated user"
STRUCTURES = {ONE_REQUEST: "single step", MULTI_TURN: "multi turn"}
STEPPED = ("gymnasium_agent", "aviary_agent")
MEDIA = {"input_image": "pictures", "input_audio": "sounds"}
"""The types of content parts that are not text."""
SANDBOXES = {"ConfinedPython", "grade_code"}


def environments(repository: Path) -> str:
    """Return the body of the page of environments: a table for each domain."""
    found = [each for each in catalog.environments(_silent) if each.kind == "environment"]
    by_domain: dict[str, list[Component]] = {}
    for each in found:
        by_domain.setdefault(str(each.domain or "other"), []).append(each)
    header = ("environment", "task", "graded by", "form", "data")
    parts = [
        f"## {domain.replace('_', ' ').capitalize()}\n\n"
        f"{table(header, (_environment_row(each, repository) for each in members))}\n"
        for domain, members in sorted(by_domain.items())
    ]
    return "\n".join([*parts, _pages(RESOURCES_TIER, found)])


def properties(repository: Path) -> str:
    """Return a table of the properties of all environments."""
    found = [each for each in catalog.environments(_silent) if each.kind == "environment"]
    header = ("environment", "structure", "capability", "task type", "domain", "verification", "tools", "also")
    return table(header, (_properties_row(each, repository) for each in found))


def benchmarks(repository: Path) -> str:
    """Return the body of the page of benchmarks."""
    found = catalog.benchmarks(_silent)
    rows = (
        (_link("benchmarks", each), str(each.domain or ""), str(each.description or ""), _graded_by(each, repository),
         f"{each.rows:,}" if each.rows else "", str(each.num_repeats or 1), str(each.license or ""))
        for each in found
    )  # fmt: skip
    header = ("benchmark", "domain", "task", "graded by", "rows", "repeats", "licence")
    return f"{table(header, rows)}\n\n{_pages('benchmarks', found)}"


def servers(tier: ServerType) -> Callable[[Path], str]:
    """Return a function for the body of the page of agents or of model servers."""

    def body(repository: Path) -> str:
        found = catalog.servers(tier, _silent)
        rows = ((_link(tier, each), _summary(each), ", ".join(map(code, each.configs))) for each in found)
        return f"{table(('server', 'what it does', 'configs'), rows)}\n\n{_pages(tier, found)}"

    return body


def _environment_row(component: Component, repository: Path) -> tuple[str, ...]:
    agents = _agents(component)
    datasets = [dataset for _, settings in agents for dataset in settings.get("datasets") or ()]
    licences = dict.fromkeys(str(dataset["license"]) for dataset in datasets if dataset.get("license"))
    tools = _tools(component, datasets, repository)
    sizes = ", ".join(f"{dataset['name']} {_size(dataset, repository)}" for dataset in datasets)
    return (
        _link(RESOURCES_TIER, component),
        component.description or _summary(component),
        _graded_by(component, repository),
        _form([implementation for implementation, _ in agents]) + (f", {counted(tools, 'tool')}" if tools else ""),
        f"{sizes}; {', '.join(licences) or 'Apache 2.0'}",
    )


def _properties_row(component: Component, repository: Path) -> tuple[str, ...]:
    agents = _agents(component)
    datasets = [dataset for _, settings in agents for dataset in settings.get("datasets") or ()]
    tools = _tools(component, datasets, repository)
    form = _form([implementation for implementation, _ in agents])
    settings = [settings for _, settings in _implementations(component, RESOURCES_TIER)]
    code_of_server = _code_of(component, repository)
    states = _states(code_of_server)
    verification = _graded_by(component, repository)
    if verification == "a program" and form == STEP_BY_STEP:
        verification = "rewards of the steps"
    elif verification == "a program" and _verifies(code_of_server, states):
        verification = "the final state"
    varies = any(implementation == "aviary_agent" for implementation, _ in agents)
    return (
        _link(RESOURCES_TIER, component),
        "multi step" if form == ONE_REQUEST and tools else STRUCTURES.get(form, form),
        *(next(str(each[key]) for each in settings if key in each) for key in ("capability", "task_type")),
        str(component.domain or "other").replace("_", " "),
        verification.replace("comparison of all answers to a task", "comparison"),
        "any" if varies else str(tools or ""),
        ", ".join((["state"] if states else []) + _media(datasets, repository)),
    )


def _states(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of the classes for the state of a rollout."""
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "SessionState" for base in node.bases)
    }


def _verifies(nodes: Iterable[ast.AST], states: set[str]) -> bool:
    """Return whether a `verify` method receives the state of its rollout."""
    return any(
        isinstance(argument.annotation, ast.Name) and argument.annotation.id in states
        for node in nodes
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == "verify"
        for argument in node.args.args
    )


def _media(datasets: list[JsonObject], repository: Path) -> list[str]:
    """Return the kinds of data that the example rows contain besides text."""
    files = [repository / dataset["jsonl_fpath"] for dataset in datasets if dataset.get("type") == "example"]
    text = "".join(path.read_text("utf-8") for path in files if path.is_file())
    return [name for part, name in MEDIA.items() if part in text]


def _pages(folder: str, components: Iterable[Component]) -> str:
    names = dict.fromkeys(each.name.partition("/")[0] for each in components)
    return toctree(f"{name} </{folder}/{name}>" for name in names)


def _silent(_: str) -> None:
    """Ignore notes about files that cannot be read: the tests report those."""


def _link(folder: str, component: Component) -> str:
    return f"[{component.name}](../{folder}/{component.name.partition('/')[0]}.md)"


def _readme(component: Component) -> str:
    folder = component.path if component.path.is_dir() else component.path.parent
    place = folder if (folder / "README.md").is_file() else folder.parent
    return (place / "README.md").read_text("utf-8")


def _summary(component: Component) -> str:
    """Return the part of a README's title after the name, or else the README's first sentence."""
    readme = _readme(component)
    summary = title_of(readme).partition(": ")[2]
    return summary[:1].upper() + summary[1:] if summary else summary_of(readme)


def _blocks(component: Component) -> JsonObject:
    merged: JsonObject = plain(follow_directives(gather([component.path], (), None, None, skip_dotenv=True).tree))
    return merged


def _implementations(component: Component, tier: ServerType) -> Iterator[tuple[str, JsonObject]]:
    for block in _blocks(component).values():
        if isinstance(block, dict):
            yield from (block.get(tier) or {}).items()


def _agents(component: Component) -> list[tuple[str, JsonObject]]:
    return list(_implementations(component, AGENT_TIER))


def _form(agents: list[str]) -> str:
    if USERS in agents:
        return MULTI_TURN
    return STEP_BY_STEP if any(agent in STEPPED for agent in agents) else ONE_REQUEST


def _graded_by(component: Component, repository: Path) -> str:
    """Return how answers are graded, from the settings in the config and from what the environment's code imports."""
    found: dict[str, None] = {}
    for implementation, settings in _implementations(component, RESOURCES_TIER):
        if settings.get("should_use_judge") is not False and any(map(_is_judge, settings.items())):
            found["a judge model"] = None
        if "reward_model_server" in settings:
            found["a reward model"] = None
        if "group_verification" in settings:
            found["comparison of all answers to a task"] = None
        code_files = (repository / RESOURCES_TIER / implementation).glob("*.py")
        if SANDBOXES & {name for path in code_files for name in _names_in(path.read_text("utf-8"))}:
            found["unit tests in a sandbox"] = None
    return ", ".join(found) or "a program"


def _is_judge(setting: tuple[str, object]) -> bool:
    key, value = setting
    return (key == "judge_model_server" and bool(value)) or (isinstance(value, dict) and "labels" in value)


def _names_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nemo_gym"):
            yield from (alias.name for alias in node.names)


def _tools(component: Component, datasets: list[JsonObject], repository: Path) -> int:
    """Return the number of tools: those that the server lists, or those that the example rows offer."""
    code_of_server = _code_of(component, repository)
    if any(isinstance(node, ast.FunctionDef) and node.name == "tools" for node in code_of_server):
        # Its list depends on the config.
        with open_configs([str(component.path)]) as environment:
            listed = len(listed_tools(environment.server()))
    else:
        listed = sum(
            any(_is_tool(decorator) for decorator in node.decorator_list)
            for node in code_of_server
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    examples = [repository / dataset["jsonl_fpath"] for dataset in datasets if dataset.get("type") == "example"]
    offered = {
        tool.get("name")
        for path in examples
        if path.is_file()
        for row in read_rows(path)
        for tool in row.get("responses_create_params", {}).get("tools") or ()
    }
    return max(listed, len(offered))


def _code_of(component: Component, repository: Path) -> list[ast.AST]:
    """Return all syntax nodes of an environment's folder, and of the folders whose server it derives from."""
    nodes = _nodes(component.path.parent.parent)
    modules = [str(node.module).split(".") for node in nodes if isinstance(node, ast.ImportFrom)]
    others = {names[1] for names in modules if names[0] == RESOURCES_TIER} - {component.path.parent.parent.name}
    return [*nodes, *(node for name in sorted(others) for node in _nodes(repository / RESOURCES_TIER / name))]


def _nodes(folder: Path) -> list[ast.AST]:
    return [node for path in sorted(folder.glob("*.py")) for node in ast.walk(ast.parse(path.read_text("utf-8")))]


def _is_tool(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id == "tool"


def _size(dataset: JsonObject, repository: Path) -> str:
    """Return a dataset's number of rows, from its settings or its file."""
    if dataset.get("size"):
        return f"{dataset['size']:,}"
    if count := (dataset.get("prepare_args") or {}).get("count"):
        return f"{count:,}"
    file = repository / str(dataset["jsonl_fpath"])
    return f"{sum(1 for _ in read_raw_lines(file)):,}" if file.is_file() else "fetched"
