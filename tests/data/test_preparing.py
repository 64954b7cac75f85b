"""The command lines of `prepare.py` files: their flags, defaults, help texts and exit codes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from nemo_gym import DataError, UsageError, run_prepare
from tests.each_case import each_case

SCRIPTS = (Path(__file__).parents[2] / "resources_servers").glob("*/prepare.py")

Color = Literal["red", "blue"]


class Recorder:
    """A `prepare` function that keeps the arguments of its last call."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def prepare(
        self,
        output: Path,
        count: int = 100,
        *,
        share: float = 0.5,
        dim_room: tuple[int, int] = (7, 7),
        names: Sequence[str] = (),
        sizes: list[int] | None = None,
        levels: Path | None = None,
        color: Color = "red",
        all_deals: bool = False,
        shuffle: bool = True,
        title: Annotated[str, "title of the set"] = "100%",
    ) -> None:
        """Write rows.

        share: how many of them, as a share
            of one
        """
        self.given = {name: value for name, value in locals().items() if name != "self"}


DEFAULTS = {
    "output": Path("rows.jsonl"),
    "count": 100,
    "share": 0.5,
    "dim_room": (7, 7),
    "names": (),
    "sizes": None,
    "levels": None,
    "color": "red",
    "all_deals": False,
    "shuffle": True,
    "title": "100%",
}


@each_case(
    ("words", "changed"),
    [
        ("", {}),
        ("--count 3", {"count": 3}),
        ("--share 1", {"share": 1.0}),
        ("--dim-room 4 5", {"dim_room": (4, 5)}),
        ("--names a --names b", {"names": ["a", "b"]}),
        ("--sizes 1 --sizes 2", {"sizes": [1, 2]}),
        ("--levels levels.txt", {"levels": Path("levels.txt")}),
        ("--color blue", {"color": "blue"}),
        ("--all-deals", {"all_deals": True}),
        ("--no-shuffle", {"shuffle": False}),
        ("--title x", {"title": "x"}),
    ],
)
def test_flags_become_arguments(words, changed):
    recorder = Recorder()
    run_prepare(recorder.prepare, ["--output", "rows.jsonl", *words.split()])
    assert recorder.given == {**DEFAULTS, **changed}


@each_case("words", ["", "--output", "--output x --count many", "--output x --color green", "--colour"])
def test_wrong_usage_exits_with_2(capsys, words):
    with pytest.raises(SystemExit, match="2"):
        run_prepare(Recorder().prepare, words.split())
    assert "usage: " in capsys.readouterr().err


def failing(error):
    def prepare(output: Path) -> None:
        raise error

    return prepare


def test_user_error_exits_with_1_in_one_line(capsys):
    with pytest.raises(SystemExit, match="1"):
        run_prepare(failing(DataError("in.jsonl:2: 100% wrong.")), ["--output", "x"])
    assert capsys.readouterr().err == "in.jsonl:2: 100% wrong.\n"


def test_usage_error_exits_with_2(capsys):
    with pytest.raises(SystemExit, match="2"):
        run_prepare(failing(UsageError("--a: not with --b")), ["--output", "x"])
    assert capsys.readouterr().err.endswith("error: --a: not with --b\n")


def test_ctrl_c_exits_with_130_in_one_line(capsys):
    with pytest.raises(SystemExit, match="130"):
        run_prepare(failing(KeyboardInterrupt()), ["--output", "x"])
    assert capsys.readouterr().err == "Interrupted.\n"


@each_case("count", ["0", "-3"])
@each_case("name", ["mcqa --split validation", "visual_reasoning", "short_answer_judge", "equivalence_llm_judge"])
def test_count_below_one_keeps_the_file(tmp_path, capsys, name, count):
    folder, *words = name.split()
    prepare = importlib.import_module(f"resources_servers.{folder}.prepare").prepare
    output = tmp_path / "rows.jsonl"
    output.write_text("{}\n")
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, [*words, "--count", count, "--output", str(output)])
    assert capsys.readouterr().err == f"count: must be at least 1, found {count}.\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows.jsonl", "{}\n")]


def test_unwritable_output_is_reported_in_one_line(tmp_path, capsys):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "file").touch()
    prepare = importlib.import_module("resources_servers.visual_reasoning.prepare").prepare
    for output, problem in {
        tmp_path / "folder.jsonl": "Is a directory",
        tmp_path / "file" / "rows.jsonl": "File exists",
        Path("/sys/rows.jsonl"): "Permission denied",
    }.items():
        with pytest.raises(SystemExit, match="1"):
            run_prepare(prepare, ["--count", "1", "--output", str(output)])
        assert capsys.readouterr().err == f"{output}: cannot be written ({problem}). Check the path.\n"
    assert list((tmp_path / "folder.jsonl").iterdir()) == []


def test_rows_and_folder_are_printed(tmp_path, capsys):
    prepare = importlib.import_module("resources_servers.audio_digits.prepare").prepare
    output = tmp_path / "rows.jsonl"
    run_prepare(prepare, ["--count", "2", "--embed", "--output", str(output)])
    assert capsys.readouterr().out == f"2 rows in {output}\n"
    run_prepare(prepare, ["--count", "1", "--output", str(output)])
    assert capsys.readouterr().out == f"1 row in {output}, with files in {tmp_path / 'rows_audio'}\n"


def test_bug_keeps_its_traceback():
    with pytest.raises(KeyError):
        run_prepare(failing(KeyError("bug")), ["--output", "x"])


def test_help_comes_from_docstring_and_annotations(capsys):
    with pytest.raises(SystemExit, match="0"):
        run_prepare(Recorder().prepare, ["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "The command lines of `prepare.py` files: " in words
    assert "--output OUTPUT the file to write --count" in words
    assert "--count COUNT number of rows (default: 100)" in words
    assert "--share SHARE how many of them, as a share of one (default: 0.5)" in words
    assert "(default: 7 7)" in words
    assert "title of the set (default: 100%)" in words


@each_case("annotation", [dict, "int | str", "tuple[int, str]", "Literal[1, 'a']", Any])
def test_unsupported_annotation_names_its_parameter(annotation):
    def prepare(what) -> None: ...

    prepare.__annotations__["what"] = annotation
    with pytest.raises(TypeError, match=r"parameter 'what': .* cannot be read from a command line"):
        run_prepare(prepare, [])


@each_case("name", sorted(path.parent.name for path in SCRIPTS))
def test_every_flag_has_a_help_text(name, capsys):
    module = importlib.import_module(f"resources_servers.{name}.prepare")
    with pytest.raises(SystemExit, match="0"):
        run_prepare(module.prepare, ["--help"])
    entries = re.split(r"^  (?=-)", capsys.readouterr().out.partition("options:")[2], flags=re.MULTILINE)[1:]
    assert any(entry.startswith("--output ") for entry in entries)
    for entry in entries:
        assert re.search(r"\s{2,}[a-z]", entry.strip(), re.IGNORECASE), entry
