"""Pages, help and messages have one spelling of each command and setting, and all spellings mean the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym.cli.commands import COMMANDS, by_script, by_words
from nemo_gym.cli.main import main
from nemo_gym.cli.options import Options
from nemo_gym.cli.rollouts import COLLECT_WITH_SERVERS
from nemo_gym.config.loading import load
from nemo_gym.config.overrides import parse_override
from nemo_gym.rollouts.job import CollectJob

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY / "docs" / "_ext"))

from pages.commands import names_of  # noqa: E402 - found by the line above

PAGES = (
    "README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*.yaml", "*/README.md", "nemo_gym/cli/init/templates",
    "nemo_gym/*.sh",
)  # fmt: skip
NOT_COUNTED = ("docs/reference/spellings.md", "docs/contribute/published_folders.md", "tests/", "docs/_")
VARIANTS = {"folders:test_all": "folders:test", "data:prepare_data": "data:collate"}
"""Scripts that do a little more than the command of their name: all folders, and metrics next to the data."""
OTHER_NAMES = {name for command in COMMANDS for name in names_of(command) if name != command.usual or command.is_alias}
HYDRA = "actor_rollout_ref"
"""Where verl's own settings begin, whose command line is Hydra's."""
OVERRIDE = rf"(?<![\w+*)\]}}/.-])\+{{1,2}}(?!{HYDRA})(?:[a-z_]|<|\{{\}})[\w.<>{{}}]*="
OTHER = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(map(re.escape, OTHER_NAMES), key=len, reverse=True))})(?![\w-])|{OVERRIDE}"
    rf"|--environment (?:{'|'.join(path.name for path in (REPOSITORY / 'resources_servers').iterdir())})\b"
)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page, README and template."""
    listed = subprocess.run(["git", "ls-files", *PAGES], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if not name.startswith(NOT_COUNTED) and Path(name).suffix != ".jsonl":
            yield name, (REPOSITORY / name).read_text("utf-8")


def messages() -> Iterator[tuple[str, str]]:
    """Yield the texts of the code, with their places. Docstrings and single words are left out."""
    for path in sorted((REPOSITORY / "nemo_gym").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in docstrings | parts or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts_of = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts_of)
            if " " in text:
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno}", text


def helps(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """Yield the help of every command."""
    for words in [[], *(command.spelled.split()[1:] for command in COMMANDS)]:
        with suppress(SystemExit):
            main([*words, "--help"], "ng")
        yield f"ng {' '.join(words)} --help", capsys.readouterr().out


def test_one_spelling_is_used_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [*pages(), *messages(), *helps(capsys)]
    counts = Counter({place: len(OTHER.findall(text)) for place, text in texts})
    with capsys.disabled():
        sys.stdout.write(f"\nother spellings: {counts.total()} in {len(+counts)} of {len(texts)} texts\n")
    found = {place: count for place, count in counts.items() if count}
    assert found == {}


@pytest.mark.parametrize(
    "text", ["`ng_check`", "ng env start", "x +a.b=1", "--environment mcqa", "(++<name>.port=…)", "'+{}=true now'"]
)
def test_other_spellings_are_recognized(text: str) -> None:
    assert OTHER.search(text)


@pytest.mark.parametrize("text", ["ng_run", "ng env check", "a += b", "f(a)+b=c", "ng_checked", "C++=x"])
def test_usual_spellings_are_not_counted(text: str) -> None:
    assert not OTHER.search(text)


def test_all_names_select_the_same_command() -> None:
    for command in COMMANDS:
        if command.function in VARIANTS:
            continue
        for name in names_of(command):
            words = name.split()
            found = by_words([*words[1:], "NAME"]) if len(words) > 1 else None
            selected = found.command if found else by_script(name)
            assert selected is not None, name
            assert selected.function.replace("test_all", "test") == command.function.replace("test_all", "test"), name


@pytest.mark.parametrize(
    "words",
    [
        ["--num-repeats", "4"], ["--num-repeats=4"], ["--num_repeats", "4"], ["+num_repeats=4"], ["++num_repeats=4"],
    ],
)  # fmt: skip
def test_all_forms_set_the_same_value(words: list[str]) -> None:
    line = Options("ng_collect_rollouts", CollectJob).read([*words, "--output", "x.jsonl"])
    assert load(*line, skip_dotenv=True).plain["num_repeats"] == 4


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("++num_repeats=4", ["--num-repeats", "4"]),
        ("++overwrite=true", ["--overwrite"]),
        ("++resume_from_cache=true", ["--resume"]),
        ('++resume_from_cache="force"', ["--resume=force"]),
        ('++policy_model_name="4.10"', ["--model", "4.10"]),
        ('++policy_base_url="http://a/v1"', ["--model-url", "http://a/v1"]),
        ('++responses_create_params={"temperature":0.5}', ["--responses-create-params", '{"temperature":0.5}']),
        ("+head_server.port=9001", ["--head_server.port", "9001"]),
        ("+default_host='0.0.0.0'", ["--default-host", "0.0.0.0"]),
        ('++paint.colour="-dark \\"red\\""', ['--paint.colour=-dark "red"']),
        ("++paint.colours=[red, blue]", ["--paint.colours", '["red","blue"]']),
        ("++paint.width=1e-3", ["--paint.width", "0.001"]),
    ],
)
def test_flag_means_the_same_as_the_override(override: str, words: list[str]) -> None:
    assert COLLECT_WITH_SERVERS.spelled([parse_override(override)]) == words
    as_flag, as_override = (COLLECT_WITH_SERVERS.read(given) for given in (words, [override]))
    assert load(*as_flag, skip_dotenv=True).plain == load(*as_override, skip_dotenv=True).plain


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["~wandb_project"], ["~wandb_project"]),
        (["++overwrite=false"], ["++overwrite=false"]),
        (["++colour=red"], ['++colour="red"']),
        (['++paint.colour="[red]"'], ['++paint.colour="[red]"']),
        (["++paint.width=1e-7"], ["++paint.width=1e-07"]),
        (["++num_repeats=4", "+num_repeats=5"], ["++num_repeats=4", "++num_repeats=5"]),
        (["++paint={colour: red}", "++paint.colour=blue"], ['++paint={"colour":"red"}', '++paint.colour="blue"']),
    ],
)
def test_overrides_without_an_equal_flag_stay(overrides: list[str], words: list[str]) -> None:
    assert COLLECT_WITH_SERVERS.spelled([parse_override(each) for each in overrides]) == words
