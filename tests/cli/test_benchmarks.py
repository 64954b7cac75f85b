"""Tests of `ng_list_benchmarks` and `ng_prepare_benchmark`."""

from __future__ import annotations

import re

import orjson
import pytest

from tests.wheel import write_wheel

pytestmark = pytest.mark.slow

CONFIG = """
{name}:
  resources_servers:
    mcqa:
      entrypoint: app.py
      domain: math
      description: Sums of two numbers
{name}_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
        - name: {name}
          type: benchmark
          jsonl_fpath: benchmarks/{name}/data/{name}.jsonl
          prepare_script: benchmarks/{name}/prepare.py
          num_repeats: 4
"""
SIZE_AND_LICENCE = """
          size: 1319
          license: MIT
"""
PREPARE = """
import os
from pathlib import Path


def prepare(count: int = 2) -> Path:
    path = Path(__file__).parent / "data" / "{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{{"made_by": %d}}\\n' % os.getpid() * count)
    return path
"""


TABLES = """
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class Config(BaseResourcesServerConfig):
    folder: str


class Tables(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


@pytest.fixture
def benchmarks(workplace):
    for name in ("products", "sums"):
        workplace.write(f"benchmarks/{name}/config.yaml", CONFIG.format(name=name))
        workplace.write(f"benchmarks/{name}/prepare.py", PREPARE.format(name=name))
    workplace.write("benchmarks/sums/hard.yaml", CONFIG.format(name="sums"))
    workplace.write("benchmarks/sums/prompts/default.yaml", "user: '{question}'\n")
    return workplace


def rows(workplace, name):
    path = workplace.folder / f"benchmarks/{name}/data/{name}.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_benchmarks_are_listed(benchmarks):
    finished = benchmarks.run("ng_list_benchmarks")
    assert (finished.code, finished.err) == (0, "")
    head, *lines = finished.out.splitlines()
    assert head.split() == ["name", "domain", "rows", "repeats", "licence", "data", "description"]
    own = {cells[0]: cells[1:] for line in lines if (cells := re.split(" {2,}", line.rstrip()))}
    assert [name for name in own if name in ("products", "sums", "sums/hard")] == ["products", "sums", "sums/hard"]
    assert own["products"] == ["math", "–", "4", "–", "missing", "Sums of two numbers"]
    assert benchmarks.run("ng_prepare_benchmark", "--benchmark", "products").code == 0
    benchmarks.write("benchmarks/sums/config.yaml", CONFIG.format(name="sums") + SIZE_AND_LICENCE)
    out = benchmarks.run("ng_list_benchmarks").out
    assert re.search(r"^products +math +2 +4 +– +prepared ", out, re.MULTILINE)
    assert re.search(r"^sums +math +1,319 +4 +MIT +missing ", out, re.MULTILINE)


def test_other_yaml_files_do_not_hide_benchmarks(benchmarks):
    (benchmarks.folder / "benchmarks/sums/prompts/latin.yaml").write_bytes(b"user: caf\xe9\n")
    (benchmarks.folder / "benchmarks/sums/folder.yaml").mkdir()
    quoted = CONFIG.format(name="products").replace("type: benchmark", "type: 'benchmark'")
    benchmarks.write("benchmarks/products/config.yaml", quoted)
    finished = benchmarks.run("ng", "list", "benchmarks", "--json")
    assert (finished.code, finished.err) == (0, "")
    assert {"products", "sums", "sums/hard"} <= {each["name"] for each in orjson.loads(finished.out)}


CONVERT = """
from pathlib import Path

from nemo_gym import convert_table
from nemo_gym.jsonl import write_rows

FOLDER = Path(__file__).parent


def prepare(output: Path = FOLDER / "data" / "sums.jsonl", *, skip_bad: bool = False) -> Path:
    rows = convert_table(FOLDER / "sums.csv", {"sum": int}, lambda row: row.fields, skip_bad=skip_bad)
    write_rows(output, rows)
    return output
"""


def test_bad_rows_of_a_benchmark_are_skipped_on_request(benchmarks):
    benchmarks.write("benchmarks/sums/prepare.py", CONVERT)
    benchmarks.write("benchmarks/sums/sums.csv", "sum\n3\nthree\n4\n")
    refused = benchmarks.run("ng", "eval", "prepare", "--benchmark", "sums")
    (error,) = errors_of(refused)
    assert refused.code == 1
    assert "sums.csv:3: column 'sum': " in error
    assert error.endswith("To leave out such lines, prepare the data with --skip-bad.")
    finished = benchmarks.run("ng", "eval", "prepare", "--benchmark", "sums", "--skip-bad")
    assert finished.code == 0
    assert "sums.csv:3: column 'sum': " in finished.err
    assert "skipped 1 of 3 lines" in finished.err
    assert rows(benchmarks, "sums") == [{"sum": 3}, {"sum": 4}]


def test_log_that_cannot_be_written_does_not_hide_the_error(benchmarks):
    benchmarks.write("benchmarks/sums/data", "not a folder")
    benchmarks.write("benchmarks/sums/prepare.py", "def prepare():\n    return 1 / 0\n")
    finished = benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums", "--benchmark", "products")
    assert finished.code == 1
    (error,) = errors_of(finished)
    assert error.endswith("prepare() failed: prepare.py:2: ZeroDivisionError: division by zero. Correct the script.")
    assert finished.out.startswith("prepared 'products': 2 rows in ")


def test_script_that_is_not_utf8_is_reported(benchmarks):
    path = benchmarks.folder / "benchmarks/sums/prepare.py"
    path.write_bytes(b"word = 'caf\xe9'\n")
    finished = benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums")
    assert finished.code == 1
    assert f"{path}: prepare() failed: prepare.py:1: SyntaxError: " in finished.err


def test_benchmarks_are_listed_for_programs(benchmarks):
    listed = {each["name"]: each for each in orjson.loads(benchmarks.run("ng", "list", "benchmarks", "--json").out)}
    assert listed.keys() >= {"products", "sums", "sums/hard"}
    assert listed["products"] == {
        "name": "products",
        "kind": "benchmark",
        "path": str(benchmarks.folder / "benchmarks/products/config.yaml"),
        "domain": "math",
        "description": "Sums of two numbers",
        "configs": [],
        "agents": ["products_agent"],
        "datasets": ["products (benchmark)"],
        "num_repeats": 4,
        "rows": None,
        "license": None,
        "is_prepared": False,
    }


DERIVED = """
config_paths: [resources_servers/adding/configs/adding.yaml]
derived_agent:
  _inherit_from: adding_agent
  responses_api_agents:
    simple_agent:
      datasets:
        - {name: derived, type: benchmark, jsonl_fpath: benchmarks/derived/data.jsonl, prepare_script: p.py}
"""


def test_benchmark_inherits_domain_of_its_server(workplace):
    workplace.write("resources_servers/adding/configs/adding.yaml", CONFIG.format(name="adding"))
    workplace.write("benchmarks/derived/config.yaml", DERIVED)
    found, *_ = orjson.loads(workplace.run("ng", "search", "benchmarks", "Sums of two", "--json").out)
    assert (found["name"], found["domain"], found["description"]) == ("derived", "math", "Sums of two numbers")
    assert (found["agents"], found["num_repeats"]) == (["derived_agent"], 1)


@pytest.mark.parametrize(
    "words",
    [
        ("ng_prepare_benchmark", "+config_paths=[benchmarks/sums/config.yaml]"),
        ("ng", "eval", "prepare", "--benchmark", "sums"),
        ("ng", "eval", "prepare", "--benchmark", "sums/hard"),
        ("ng", "eval", "prepare", "--config", "benchmarks/sums/hard.yaml"),
    ],
)
def test_prepare_script_makes_the_data(benchmarks, words):
    made = benchmarks.folder / "benchmarks/sums/data/sums.jsonl"
    finished = benchmarks.run(*words, "+prepare_script_args={count: 3}")
    name = "sums/hard" if "hard" in words[-1] else "sums"
    assert finished == (0, f"prepared '{name}': 3 rows in {made}\n", f"preparing benchmark '{name}' …\n")
    assert len(rows(benchmarks, "sums")) == 3


def test_changed_arguments_prepare_the_benchmark_again(benchmarks):
    row = PREPARE.format(name="sums").replace('"made_by": %d', '"responses_create_params": {"input": "%d"}')
    benchmarks.write("benchmarks/sums/prepare.py", row)
    config = ("+config_paths=[benchmarks/sums/config.yaml]",)
    assert benchmarks.run("ng_prepare_benchmark", *config, "+prepare_script_args={count: 3}").code == 0
    collate = ("ng_prepare_data", *config, "+output_dirpath=out", "+mode=train_preparation")
    assert benchmarks.run(*collate).code == 0
    assert len(rows(benchmarks, "sums")) == 3
    changed = f"{CONFIG.format(name='sums')}          prepare_args: {{count: 5}}\n"
    benchmarks.write("benchmarks/sums/config.yaml", changed)
    refused = benchmarks.run(*collate)
    assert refused.code == 1
    assert "was made with other prepare_args. Create it with: ng eval prepare --benchmark sums" in refused.err
    assert len(rows(benchmarks, "sums")) == 3
    more = ("+should_download=true", "+overwrite_metrics_conflicts=true")
    assert benchmarks.run(*collate, *more).code == 0
    assert len(rows(benchmarks, "sums")) == 5


def test_benchmarks_are_prepared_in_separate_processes(benchmarks):
    words = ("--benchmark", "sums", "--benchmark", "products", "+num_prepare_benchmark_processes=2")
    finished = benchmarks.run("ng_prepare_benchmark", *words)
    assert (finished.code, len(finished.out.splitlines())) == (0, 2)
    assert all(len(rows(benchmarks, name)) == 2 for name in ("sums", "products"))


INHERITING = """
config_paths: [resources_servers/adding/configs/adding.yaml]
{name}_agent:
  _inherit_from: adding_agent
  responses_api_agents:
    simple_agent:
      datasets:
        - name: {name}
          type: benchmark
          jsonl_fpath: benchmarks/{name}/data/{name}.jsonl
"""
ASKING = """
from pathlib import Path

from nemo_gym.global_config import get_global_config_dict, get_hf_token


def prepare() -> Path:
    path = Path(__file__).parent / "data" / "{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{{"made_by": "%s of %s"}}\\n' % (get_hf_token(), get_global_config_dict()["owner"]))
    return path
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_prepare_script_reads_configuration_without_model(workplace, processes):
    workplace.write("resources_servers/adding/configs/adding.yaml", CONFIG.format(name="adding"))
    workplace.write("env.yaml", "hf_token: secret\n")
    for name in ("left", "right"):
        workplace.write(f"benchmarks/{name}/config.yaml", INHERITING.format(name=name))
        workplace.write(f"benchmarks/{name}/prepare.py", ASKING.format(name=name))
    words = ("--benchmark", "left", "--benchmark", "right", f"+num_prepare_benchmark_processes={processes}")
    finished = workplace.run("ng_prepare_benchmark", *words, "+owner=me")
    # A benchmark is named after its own folder, even if its agent comes from another one.
    assert re.findall(r"^prepared '(\w+)': 1 row in ", finished.out, re.MULTILINE) == ["left", "right"]
    for name in ("left", "right"):
        assert rows(workplace, name) == [{"made_by": "secret of me"}]


IMPORTING = """
from multiprocessing import Pool
from pathlib import Path

from benchmarks.sums.hardness import SUMS
from resources_servers.mcqa.app import McqaServer


def added(pair):
    return sum(pair)


def prepare() -> Path:
    path = Path(__file__).parent / "data" / "sums.jsonl"
    path.parent.mkdir(exist_ok=True)
    with Pool(1) as pool:
        path.write_text('{"made_by": %r}\\n' % (pool.map(added, SUMS),))
    return path
"""


def test_prepare_script_imports_own_and_other_folders(benchmarks):
    benchmarks.write("benchmarks/sums/hardness.py", "SUMS = [(1, 2), (3, 4)]")
    benchmarks.write("benchmarks/sums/prepare.py", IMPORTING)
    finished = benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums")
    assert finished.code == 0, finished.err
    assert rows(benchmarks, "sums") == [{"made_by": [3, 7]}]


def test_existing_data_is_reused_if_asked(benchmarks):
    words = ("--benchmark", "sums", "--benchmark", "products", "+use_cached_prepared_benchmarks=true")
    benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums")
    before = rows(benchmarks, "sums")
    finished = benchmarks.run("ng_prepare_benchmark", *words)
    assert (finished.code, rows(benchmarks, "sums")) == (0, before)
    assert "sums.jsonl (exists already)" in finished.out
    assert len(rows(benchmarks, "products")) == 2


def errors_of(finished):
    """Return what a command printed to standard error, without the lines about each preparation's beginning."""
    return [line for line in finished.err.splitlines() if not line.startswith("preparing benchmark '")]


@pytest.mark.parametrize("processes", [1, 2])
def test_failure_does_not_stop_other_benchmarks(benchmarks, processes):
    benchmarks.write("benchmarks/sums/prepare.py", PREPARE.format(name="other"))
    words = ("--benchmark", "sums", "--benchmark", "products", f"+num_prepare_benchmark_processes={processes}")
    finished = benchmarks.run("ng_prepare_benchmark", *words)
    program = benchmarks.folder / "benchmarks/sums/prepare.py"
    assert finished.code == 1
    (error,) = errors_of(finished)
    assert error.startswith(f"Error: benchmark 'sums': {program}: prepare() returned '")
    assert (
        finished.out == f"prepared 'products': 2 rows in {benchmarks.folder}/benchmarks/products/data/products.jsonl\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmark", "sum"), "--benchmark sum: benchmarks/sum/config.yaml not found in "),
        (
            ("--benchmark", "sums", "+prepare_script_args={number: 3}"),
            "prepare(count: int = 2) -> pathlib.Path does not accept these prepare_script_args: got an unexp",
        ),
        (
            ("--resources-server", "mcqa"),
            "no agent of this configuration has a dataset with type: benchmark. Choose a benchmark with "
            "--benchmark or --config. Available: ",
        ),
        (
            (),
            "or a config by name, such as --benchmark NAME or --resources-server NAME.",
        ),
    ],
)
def test_usage_error_is_reported(benchmarks, words, message):
    finished = benchmarks.run("ng_prepare_benchmark", *words)
    assert (finished.code, finished.out) == (1, "")
    assert message in finished.err, finished.err


FAILING = """
import socket
{imports}

def prepare():
    {statement}
"""


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("imports", "statement", "message"),
    [
        (
            "import no_such_package",
            "",
            "3: ModuleNotFoundError: No module named 'no_such_package'. Install the package: pip install 'no_such",
        ),
        (
            "import datasets",
            "",
            "3: ModuleNotFoundError: No module named 'datasets'. Install the package: pip install 'nemo-gym[full]'",
        ),
        (
            "",
            "socket.create_connection(('127.0.0.1', 1))",
            "ConnectionRefusedError: [Errno 111] Connection refused. Check the network, or run",
        ),
        ("import benchmarks.sums.nothing", "", "No module named 'benchmarks.sums.nothing'. Correct the import."),
        ("", "{}['count']", "prepare.py:6: KeyError: 'count'. Correct the script."),
        ("", "raise SystemExit(0)", "prepare.py:6: SystemExit: 0. Raise an error instead of ending the process"),
        ("import sys\nsys.exit()", "", "prepare.py:4: SystemExit:. Raise an error instead of ending the process"),
        (
            "from huggingface_hub import hf_hub_download",
            "hf_hub_download('us/sums', 'a.jsonl', repo_type='dataset')",
            "Check the network: the hub at http://127.0.0.1:1 cannot be reached (connection refused).",
        ),
    ],
)
def test_failing_prepare_script_is_one_line(benchmarks, processes, imports, statement, message):
    script = FAILING.format(imports=imports, statement=statement or "pass")
    benchmarks.write("benchmarks/sums/prepare.py", script)
    words = ("--benchmark", "sums", "--benchmark", "products", f"+num_prepare_benchmark_processes={processes}")
    finished = benchmarks.run("ng_prepare_benchmark", *words, HF_ENDPOINT="http://127.0.0.1:1")
    program = benchmarks.folder / "benchmarks/sums/prepare.py"
    assert finished.code == 1
    (error,) = errors_of(finished)
    assert error.startswith(f"Error: benchmark 'sums': {program}: prepare() failed: prepare.py:")
    assert message in error


def test_bare_name_is_suggested_as_benchmark(shared_workplace):
    finished = shared_workplace.run("ng_prepare_benchmark", "nope")
    assert finished.code == 2
    assert "Did you mean '--benchmark nope'?" in finished.err


QUESTIONS = """
from pathlib import Path

from nemo_gym.jsonl import write_rows


def prepare() -> Path:
    path = Path(__file__).parent / "data" / "{name}.jsonl"
    options = [{{"A": "3"}}, {{"B": "4"}}]
    row = {{"options": options, "expected_answer": "B"}}
    write_rows(path, [{{**row, "responses_create_params": {{"input": text}}}} for text in "?!"])
    return path
"""


def test_run_prepares_its_benchmarks(benchmarks):
    for name in ("products", "sums"):
        benchmarks.write(f"benchmarks/{name}/prepare.py", QUESTIONS.format(name=name))
    words = ("--benchmark", "sums", "--benchmark", "products", "--model-type", "sample_model", "--output", "r.jsonl")
    finished = benchmarks.run("ng", "eval", "run", *words)
    assert finished.code == 0, finished.err
    assert finished.err.splitlines()[:2] == ["preparing benchmark 'sums' …", "preparing benchmark 'products' …"]
    assert "16 planned = 16 scored + 0 failed" in finished.out
    # Lines of the metrics of an agent are indented.
    lines = [line for line in finished.out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines[:3]] == ["agent", "products_agent", "sums_agent"]
    # The limit holds for each benchmark, before its repeats.
    limited = benchmarks.run("ng", "eval", "run", *words, "--limit", "1", "--overwrite")
    assert "8 planned = 8 scored + 0 failed" in limited.out
    assert "4/4" in limited.out
    reused = benchmarks.run(
        "ng", "eval", "run", *words, "--limit", "1", "--overwrite", "+reuse_existing_data_preparation=true"
    )
    assert "8 planned = 8 scored + 0 failed" in reused.out


def test_unknown_benchmark_lists_the_shipped_ones(shared_workplace):
    finished = shared_workplace.run("ng_prepare_benchmark", "--benchmark", "sums")
    assert finished.code == 1
    assert "benchmarks/sums/config.yaml not found in " in finished.err
    assert ". The benchmarks are: " in finished.err
    assert "gsm8k" in finished.err


def test_traceback_of_failing_script_is_logged(benchmarks):
    benchmarks.write("benchmarks/sums/prepare.py", FAILING.format(imports="", statement="{}['count']"))
    finished = benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums")
    log = benchmarks.folder / "benchmarks/sums/data/sums_prepare.log"
    assert finished.err.endswith(f"Correct the script. The traceback is in {log}.\n")
    assert log.read_text().startswith("Traceback (most recent call last):\n")
    assert log.read_text().endswith("KeyError: 'count'\n")


WITH_PACKAGE = """
from pathlib import Path

import tinydep
from nemo_gym.global_config import get_hf_token


def prepare(word: str) -> Path:
    path = Path(__file__).parent / "data" / "sums.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"word": "%s", "value": %d, "token": "%s"}\\n' % (word, tinydep.REWARD, get_hf_token()))
    print("made")
    return path
"""


@pytest.mark.slow
def test_script_gets_packages_in_own_environment(benchmarks):
    wheel = write_wheel(benchmarks.folder)
    more = f"          prepare_args: {{word: sum}}\n          prepare_dependencies: ['tinydep @ {wheel.as_uri()}']\n"
    benchmarks.write("benchmarks/sums/config.yaml", f"{CONFIG.format(name='sums').rstrip()}\n{more}")
    benchmarks.write("benchmarks/sums/prepare.py", WITH_PACKAGE)
    words = ("ng_prepare_benchmark", "--benchmark", "sums", f"+cache_dir={benchmarks.folder}/cache")
    finished = benchmarks.run(*words, HF_TOKEN="hf_right")
    if finished.code and ("dns error" in finished.err or "error sending request" in finished.err):
        pytest.skip("the package registry cannot be reached")
    assert finished.code == 0, finished.err
    assert finished.out == f"prepared 'sums': 1 row in {benchmarks.folder}/benchmarks/sums/data/sums.jsonl\n"
    assert "building an environment for " in finished.err
    assert rows(benchmarks, "sums") == [{"word": "sum", "value": 1, "token": "hf_right"}]


@pytest.mark.parametrize(
    ("dependency", "problem"),
    [
        ("no-such-package-of-ours @ file:///no/such/folder", "could not be installed: "),
        ("a b", "'a b' is not a requirement ("),
    ],
)
def test_missing_package_of_script_is_one_line(benchmarks, dependency, problem):
    more = f"          prepare_dependencies: ['{dependency}']\n"
    benchmarks.write("benchmarks/sums/config.yaml", f"{CONFIG.format(name='sums').rstrip()}\n{more}")
    finished = benchmarks.run("ng_prepare_benchmark", "--benchmark", "sums", f"+cache_dir={benchmarks.folder}/cache")
    assert finished.code == 1
    *notes, error = errors_of(finished)
    program = benchmarks.folder / "benchmarks/sums/prepare.py"
    assert error.startswith(f"Error: benchmark 'sums': {program}: prepare_dependencies: ")
    assert problem in error
    assert all(note.startswith("building an environment for ") for note in notes)


def test_unprepared_data_of_a_server_names_the_command(benchmarks):
    benchmarks.environment("tables", TABLES)
    config = CONFIG.format(name="sums").replace(
        "    mcqa:\n", "    tables:\n      folder: benchmarks/sums/data/tables\n"
    )
    config += "        - {name: example, type: example, jsonl_fpath: rows.jsonl}\n"
    benchmarks.write("benchmarks/sums/config.yaml", config)
    benchmarks.write("rows.jsonl", '{"responses_create_params": {"input": "2 + 2"}}\n')
    problem = (
        "Error: benchmarks/sums/config.yaml:5: sums.folder: 'benchmarks/sums/data/tables' does not exist, because the "
        "data of this benchmark is not prepared. Create it with: ng eval prepare --benchmark sums\n"
    )
    model = ("--benchmark", "sums", "--model-type", "sample_model")
    run = ("ng", "eval", "run", *model, "--split", "example", "--output", "out.jsonl")
    for words in (("ng", "env", "validate", *model), ("ng_run", *model), run):
        finished = benchmarks.run(*words)
        assert (finished.code, finished.err) == (1, problem)
    assert benchmarks.run("ng", "eval", "prepare", "--benchmark", "sums").code == 0
    (benchmarks.folder / "benchmarks/sums/data/tables").mkdir()
    assert benchmarks.run("ng", "env", "validate", *model).code == 0
