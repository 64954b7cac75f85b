"""Mistakes in the code, the configuration and the data of an environment are reported with their place."""

import pytest

from nemo_gym.contract.environment import open_environment
from nemo_gym.errors import DataError, LaunchError
from tests.contract.sums import broken_promises, change

pytestmark = pytest.mark.slow


def test_folder_without_config_is_reported(folder):
    (folder / "configs/sums.yaml").unlink()
    with pytest.raises(DataError, match=r"configs: expected sums.yaml"), open_environment(folder):
        pass


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("app.py", "class SumServer(Simple", "class SumServer(Smple", r"app\.py:16: NameError: name 'Smple"),
        ("app.py", "-> float:", "-> float", r"app\.py:24: SyntaxError: expected ':'"),
        ("app.py", "def verify", "def verfy", r"app\.py: SumServer must define verify\."),
        ("oracle.py", "import call", "import cal", r"oracle\.py:2: ImportError: cannot import name 'cal'"),
        ("oracle.py", "import call", "import call\nexit()", r"oracle\.py:3: SystemExit"),
        ("app.py", "import random", "import random\nexit(0)", r"app\.py:\d+: SystemExit: 0"),
    ],
)
def test_import_error_is_reported_with_its_line(folder, file, old, new, message):
    change(folder / file, old, new)
    with pytest.raises(LaunchError, match=message), open_environment(folder):
        pass


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("oracle.py", 'row["wanted"] - 1', 'row["wnted"] - 1', "oracle.py:5: KeyError: 'wnted'"),
        ("app.py", "+= number", "+= nmber", "app.py:21: NameError: name 'nmber' is not defined"),
    ],
)
def test_error_in_code_is_reported_with_its_line(folder, file, old, new, message):
    change(folder / file, old, new)
    assert broken_promises(folder)["the oracle earns the full reward"] == message


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ("{}", r"example\.jsonl:2: the prompt uses 'wantd', but the row has only: responses_create_params"),
        (
            '{"input":"Add."}',
            r"example\.jsonl:2: prompt_config is set, but the row has responses_create_params\.input",
        ),
    ],
)
def test_prompt_that_does_not_fit_is_reported_with_line(folder, kept, message):
    (folder / "prompt.yaml").write_text("user: 'Add up to {wantd}.'\n")
    path = "resources_servers/sums/data/example.jsonl"
    change(folder / "configs/sums.yaml", path, f"{path}, prompt_config: resources_servers/sums/prompt.yaml")
    rows = f'{{"wantd": 1}}\n{{"responses_create_params": {kept}}}\n'
    (folder / "data/example.jsonl").write_text(rows, "utf-8")
    with pytest.raises(DataError, match=message), open_environment(folder):
        pass


def test_missing_example_rows_are_reported_with_config_line(folder):
    change(folder / "configs/sums.yaml", "data/example.jsonl", "data/exmple.jsonl")
    message = r"configs/sums\.yaml:12: sums_simple_agent\.datasets: dataset 'example': file '.*exmple\.jsonl' not"
    with pytest.raises(DataError, match=message), open_environment(folder):
        pass


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("number: int,", "number,", "app.py:17: @tool SumServer.add: the argument 'number' does not have a type"),
        ("body: VerifyRequest", "body", "app.py:24: SumServer.verify: the parameter 'body' would not receive the row"),
        ("return float(state", "print(state", "sums: app.py:24: verify returned nothing. Return a number"),
        ("return float(state", "return str(state", "sums: app.py:24: verify returned a str. Return a number"),
    ],
)
def test_wrong_method_is_reported_with_its_line(folder, old, new, message):
    change(folder / "app.py", old, new)
    details = list(broken_promises(folder).values())
    assert any(message in detail for detail in details)
    assert sum("Annotate it" in detail for detail in details) <= 1
