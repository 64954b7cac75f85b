"""Imports go down, never up: the drawing of the architecture, compared with what the files import."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "nemo_gym"

# Top row first. A part imports parts of any row beneath its own.
ROWS = [
    {"cli", "scaffold"},
    {"launcher", "rollouts", "data", "contract", "export"},
    {"servers", "testing"},
    {"dialects", "grading", "metrics", "capture", "sandbox"},
    {"config", "http"},
    {"schemas"},
    {"errors", "paths", "jsonl", "memory", "opaque", "version", "confinement"},
]
SIDE_BY_SIDE = {
    ("cli", "scaffold"),
    ("rollouts", "data"),
    ("contract", "data"),
    ("testing", "servers"),
    ("http", "config"),
    ("jsonl", "errors"),
}
ALIASES = {
    "base_resources_server",
    "base_responses_api_agent",
    "base_responses_api_model",
    "benchmarks",
    "config_types",
    "global_config",
    "judge",
    "mcp_auto_exposure",
    "openai_utils",
    "package_info",
    "path_utils",
    "profiling",
    "prompt",
    "responses_converter",
    "reward_profile",
    "rollout_collection",
    "rollout_correlation",
    "rollout_observability",
    "secret_utils",
    "server_utils",
    "skills",
    "train_data_utils",
    "verifier_fixture",
}
"""Published module names that only re-export; nothing of ours imports them."""

OPEN_TO_PLUGINS = {"nemo_gym", "nemo_gym.grading", "nemo_gym.dialects", "nemo_gym.testing", "nemo_gym.jsonl"}


def row_of(part: str) -> int:
    return next(number for number, row in enumerate(ROWS) if part in row)


def parts_imported_by(path: Path) -> set[str]:
    """The parts of nemo_gym that a file imports, `nemo_gym.http.client` as `http`; "" is the package itself."""
    return {name.split(".")[1] if "." in name else "" for name in modules_imported_by(path) if is_ours(name)}


def is_ours(name: str) -> bool:
    return name == "nemo_gym" or name.startswith("nemo_gym.")


def modules_imported_by(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from nemo_gym import paths` imports a part, `from nemo_gym import tool` a name.
            if node.module == "nemo_gym":
                parts = {alias.name for alias in node.names if is_part(alias.name)}
                found |= {f"nemo_gym.{part}" for part in parts} or {"nemo_gym"}
            else:
                found.add(node.module)
    return found


def is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def package_files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", package_files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    if part in ALIASES or part == "__init__":
        return
    for imported in parts_imported_by(path) - {part, ""}:
        assert imported not in ALIASES, (
            f"{path.name} imports the published name nemo_gym.{imported}; use its real home"
        )
        is_beneath = row_of(imported) > row_of(part)
        assert is_beneath or (part, imported) in SIDE_BY_SIDE, f"{part} may not import {imported}"


def test_every_part_stands_in_a_row() -> None:
    parts = {part_of(path) for path in package_files()} - ALIASES - {"__init__"}
    assert parts == set().union(*ROWS)


def test_the_launcher_imports_no_server() -> None:
    for path in (PACKAGE / "launcher").rglob("*.py"):
        assert "servers" not in parts_imported_by(path)


def test_published_names_hold_no_logic() -> None:
    for name in ALIASES:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text("utf-8"))
        kinds = {type(node) for node in tree.body}
        assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}, f"{name} defines something of its own"


def plugin_files() -> list[Path]:
    tiers = ("resources_servers", "responses_api_agents", "responses_api_models")
    return [path for tier in tiers for path in sorted((REPOSITORY / tier).rglob("*.py"))]


@pytest.mark.parametrize("path", plugin_files(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_a_folder_imports_only_what_is_open_to_authors(path: Path) -> None:
    tier, folder = path.relative_to(REPOSITORY).parts[:2]
    # Tests of our own folders may also look behind the curtain: at what a server's process wraps round the app.
    open_to_it = OPEN_TO_PLUGINS | ({"nemo_gym.servers"} if "tests" in path.parts else set())
    for name in modules_imported_by(path):
        if is_ours(name):
            is_open = any(name.startswith(f"{open_}.") for open_ in open_to_it - {"nemo_gym"})
            assert name in open_to_it or is_open, f"{name} is not open to authors"
        if name.split(".")[0] in ("resources_servers", "responses_api_agents", "responses_api_models"):
            assert name.startswith(f"{tier}.{folder}"), f"{name} belongs to another folder"
