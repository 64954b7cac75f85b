"""Imports go down, never up: the table of the architecture, compared with what the files import."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "nemo_gym"
TIERS = ("resources_servers", "responses_api_agents", "responses_api_models")

# Top row first. A part imports parts of any row below its own.
ROWS = [
    {"published"},
    {"__main__"},
    {"labelling", "launcher.kubernetes", "launcher.ray", "launcher.slurm", "packaging", "viewer"},
    {"cli", "gym"},
    {"launcher", "rollouts", "data", "contract", "evaluation", "training", "process"},
    {"servers", "testing"},
    {"harness"},
    {"web"},
    {"capture", "grading", "dialects", "metrics", "sandbox"},
    {"calls"},
    {"http"},
    {"context", "config"},
    {"records"},
    {"schemas", "errors", "paths", "jsonl", "lazy", "memory", "opaque", "plugins", "text", "version"},
]
INNER = ("launcher.kubernetes", "launcher.ray", "launcher.slurm")
"""Folders within another part that are parts of their own."""
NEIGHBOURS = {
    ("rollouts", "data"),
    ("evaluation", "data"),
    ("evaluation", "rollouts"),
    ("training", "contract"),
    ("training", "data"),
    ("training", "launcher"),
    ("training", "rollouts"),
    ("contract", "data"),
    ("contract", "launcher"),
    ("contract", "process"),
    ("data", "launcher"),
    ("testing", "servers"),
    ("jsonl", "errors"),
    ("schemas", "errors"),
    ("schemas", "jsonl"),
    ("opaque", "jsonl"),
    ("plugins", "errors"),
    ("paths", "plugins"),
    ("capture", "dialects"),
    ("grading", "sandbox"),
}
"""Parts of one row of which the first may import the second."""
EXCEPTIONS = {("nemo_gym.servers.base", "nemo_gym.process.standalone")}
"""`SimpleServer.run_webserver` starts a process, as published folders expect of the class."""
ALIASES = {
    "base_resources_server",
    "base_responses_api_agent",
    "base_responses_api_model",
    "benchmarks",
    "config_types",
    "episode_types",
    "global_config",
    "judge",
    "mcp_auto_exposure",
    "openai_utils",
    "package_info",
    "path_utils",
    "profiling",
    "prompt",
    "responses_converter",
    "responses_streaming",
    "reward_profile",
    "rollout_collection",
    "rollout_correlation",
    "rollout_observability",
    "secret_utils",
    "server_utils",
    "skills",
    "token_id_capture",
    "tool_access",
    "train_data_utils",
    "verifier_fixture",
}
"""Published module names that only re-export; nothing of ours imports them."""

BORDERS = (
    "data.trackers",
    "gym",
    "harness",
    "labelling",
    "launcher.kubernetes",
    "launcher.ray",
    "packaging",
    "published",
    "launcher.slurm",
    "training.trl",
    "viewer",
)
"""Beginnings of the modules that connect to something outside: a cluster, a hub, another program, people's labels."""
AROUND_THE_CORE = {"contract", "evaluation", "gym", "sandbox", "testing", "training"}
"""Rooms beside the core: checks of environments, comparisons, sandboxes, rollouts in process, clients of trainers."""
MOST_LINES, MOST_LINES_OF_CORE = 81_423, 52_361
"""Lower them when code goes. Raising one needs a reason in the commit."""

OPEN_TO_PLUGINS = {
    "nemo_gym", "nemo_gym.grading", "nemo_gym.dialects", "nemo_gym.testing", "nemo_gym.jsonl",
    "nemo_gym.harness", "nemo_gym.sandbox",
    "nemo_gym.data.made", "nemo_gym.data.media_files", "nemo_gym.data.sources", "nemo_gym.data.splits",
    "nemo_gym.data.tables",
}  # fmt: skip

BUILT_ON = {
    ("azure_openai_model", "openai_model"),
    ("genrm_model", "vllm_model"),
    ("inference_provider", "vllm_model"),
    ("inspect_agent", "verifiers_agent"),
    ("litellm_model", "vllm_model"),
    ("local_vllm_model", "vllm_model"),
    ("local_vllm_model_proxy", "local_vllm_model"),
    ("local_vllm_model_proxy", "vllm_model"),
    ("multiple_intents", "workplace_assistant"),
    ("openenv", "ors"),
    ("reward_model_preference", "genrm_compare"),
}
"""Folders of which the first extends the second one's server, or offers its tools and company, or its task routes."""
ADAPTERS = {"mcp_tools/joined.py", "openenv/also_serve.py", "ors/also_serve.py", "ors/episodes.py"}
"""Files of folders that add routes to the app of any server, as our own endpoint of MCP does."""
AROUND_AN_APP = {"nemo_gym.calls", "nemo_gym.data", "nemo_gym.errors", "nemo_gym.schemas"}


def is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str:
    inner = next((part for part in INNER if f"{module}.".startswith(f"nemo_gym.{part}.")), None)
    return inner or (module.split(".")[1] if "." in module else "")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts}


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, inside functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {name for name in names if name in MODULES}
            yield from inner
            if names - inner:
                yield node.module


def is_ours(name: str) -> bool:
    return name == "nemo_gym" or name.startswith("nemo_gym.")


def row_of(part: str) -> int:
    return next(number for number, row in enumerate(ROWS) if part in row)


def test_every_part_has_a_row() -> None:
    parts = {part_of(module) for module in MODULES} - ALIASES - {""}
    assert parts == set().union(*ROWS)


def test_imports_go_down() -> None:
    wrong = []
    for module, path in MODULES.items():
        part = part_of(module)
        if part in ALIASES or part == "":
            continue
        for name in imports_of(path):
            imported = part_of(name)
            if not is_ours(name) or imported in (part, "") or (module, name) in EXCEPTIONS:
                continue
            if imported in ALIASES:
                wrong.append(f"{module} imports the published name {name}; use its real home")
            elif row_of(imported) <= row_of(part) and (part, imported) not in NEIGHBOURS:
                wrong.append(f"{module} imports {name}, which is not in a row below")
    assert wrong == []


def test_no_cycle_of_files() -> None:
    # Packages that re-export lazily for authors would connect everything.
    lazy = {"nemo_gym", *(f"nemo_gym.{alias}" for alias in ALIASES)}
    graph = {
        module: {name for name in imports_of(path) if name in MODULES and (module, name) not in EXCEPTIONS} - lazy
        for module, path in MODULES.items()
        if module not in lazy
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(reversed(error.args[1]))) from None


def test_package_grows_no_further() -> None:
    lines = {module: len(path.read_text("utf-8").splitlines()) for module, path in MODULES.items()}
    of_core = {
        name: count
        for name, count in lines.items()
        if part_of(name) not in AROUND_THE_CORE | ALIASES and not name.removeprefix("nemo_gym.").startswith(BORDERS)
    }
    print(f"nemo_gym: {sum(lines.values()):,} lines, of which the core has {sum(of_core.values()):,}")  # noqa: T201
    assert sum(lines.values()) <= MOST_LINES
    assert sum(of_core.values()) <= MOST_LINES_OF_CORE


def test_core_imports_no_border() -> None:
    def is_border(module: str) -> bool:
        return module.removeprefix("nemo_gym.").startswith(BORDERS)

    wrong = [
        (module, name)
        for module, path in MODULES.items()
        # `nemo_gym` itself imports each name on first use.
        if part_of(module) not in {*ALIASES, ""} and not is_border(module)
        for name in imports_of(path)
        if is_ours(name) and is_border(name)
    ]
    assert wrong == []


def test_launcher_imports_no_server() -> None:
    above = {"servers", "web", "process"}
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if part_of(module) == "launcher"
        for name in imports_of(path)
        if is_ours(name) and part_of(name) in above
    ]
    assert wrong == []


def test_only_one_room_knows_other_packages_and_their_tests() -> None:
    """`published/` serves code that was written for another package. Elsewhere, nothing depends on such code."""
    known = {*ALIASES, "published"}
    word = re.compile(r"mock|(?<!un)published(?!\.)", re.IGNORECASE)
    found = [
        f"{module}: {line.strip()}"
        for module, path in MODULES.items()
        if part_of(module) not in known
        for line in path.read_text("utf-8").splitlines()
        if word.search(line)
    ]
    assert found == []


def test_only_names_and_two_readers_lead_to_that_room() -> None:
    """Modules that import names or commands lazily, or a reader of such data, have the room's name as text."""
    leading = {
        module
        for module, path in MODULES.items()
        if part_of(module) not in {*ALIASES, "published"} and "published." in path.read_text("utf-8")
    }
    assert leading == {
        "nemo_gym", "nemo_gym.capture.attachment", "nemo_gym.cli", "nemo_gym.cli.commands", "nemo_gym.config.foreign",
    }  # fmt: skip


def test_import_paths_of_server_folders_use_their_hooks() -> None:
    # A folder with a server imports another of the paths, too. Scripts that need only one of these start faster.
    never_alone = {
        "episode_types", "package_info", "path_utils", "profiling", "responses_streaming", "rollout_correlation",
        "rollout_observability",
        "secret_utils", "skills", "token_id_capture", "tool_access",
    }  # fmt: skip
    using = {part_of(module) for module, path in MODULES.items() if "nemo_gym.published.hooks" in imports_of(path)}
    without = ALIASES - using
    assert without == never_alone


def test_other_http_clients_stay_in_one_room() -> None:
    # `calls` only annotates with aiohttp's types, which `published` returns.
    homes = {"aiohttp": {"http", "calls", "published"}, "http.client": {"http"}, "urllib.request": {"http"}}
    wrong = [
        f"{module} imports {name}; use httpx"
        for module, path in MODULES.items()
        for name in imports_of(path)
        if part_of(module) not in homes.get(name, {part_of(module)})
    ]
    assert wrong == []


def test_public_import_paths_contain_no_logic() -> None:
    allowed = (ast.Expr, ast.ImportFrom, ast.Assign)
    paths = {name: path for name, path in MODULES.items() if part_of(name) in ALIASES}
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in paths.items()}
    assert [name for name, tree in trees.items() if not all(isinstance(node, allowed) for node in tree.body)] == []


def allowed_folders(tier: str, folder: str) -> tuple[str, ...]:
    return tuple(f"{tier}.{each}" for each in [folder, *(base for name, base in BUILT_ON if name == folder)])


def test_plugins_import_only_the_public_interface() -> None:
    wrong = []
    for path in (path for tier in TIERS for path in sorted((REPOSITORY / tier).rglob("*.py"))):
        tier, folder = path.relative_to(REPOSITORY).parts[:2]
        # Tests of our own folders may also check what a server's process adds to the app.
        is_adapter = "/".join(path.parts[-2:]) in ADAPTERS
        public = OPEN_TO_PLUGINS | (AROUND_AN_APP if is_adapter else set())
        public |= {"nemo_gym.servers", "nemo_gym.web"} if is_adapter or "tests" in path.parts else set()
        packages = tuple(f"{name}." for name in public - {"nemo_gym"})
        for name in imports_of(path):
            if is_ours(name) and name not in public and not name.startswith(packages):
                wrong.append(f"{path.relative_to(REPOSITORY)} imports {name}, which is not public")
            if name.split(".")[0] in TIERS and not name.startswith(allowed_folders(tier, folder)):
                wrong.append(f"{path.relative_to(REPOSITORY)} imports {name} of another folder")
    assert wrong == []
