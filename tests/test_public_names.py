"""The package exports exactly its declared names, and importing it is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nemo_gym
from tests.each_case import each_case

INIT = Path(nemo_gym.__file__)
HEAVY = ("ray", "openai", "pandas", "aiohttp", "fastapi", "pydantic", "omegaconf", "datasets", "wandb")


@each_case("name", nemo_gym.__all__)
def test_every_declared_name_exists(name: str) -> None:
    assert getattr(nemo_gym, name) is not None


def test_type_checkers_see_all_exported_names() -> None:
    block = next(node for node in ast.parse(INIT.read_text("utf-8")).body if isinstance(node, ast.If))
    shown = {
        (alias.asname, node.module.removeprefix("nemo_gym."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("nemo_gym.")
        for alias in node.names
    }
    assert shown == {(name, home, attribute) for name, (home, attribute) in nemo_gym._PLACES.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = nemo_gym.Nonsense


@pytest.mark.parametrize("module", ["nemo_gym", "nemo_gym.cli.main"])
def test_import_is_light_and_has_no_side_effects(module: str) -> None:
    program = (
        "import sys, os; path, environ = list(sys.path), dict(os.environ); "
        f"import {module}; "
        "assert sys.path == path and dict(os.environ) == environ; "
        f"print(sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_schemas_need_only_pydantic() -> None:
    program = f"import nemo_gym.schemas.rollout, sys; print(sorted(set(sys.modules) & set({HEAVY!r})))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['pydantic']"
