"""Reading one YAML file: scalars, line numbers, syntax errors."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import ConfigPathNotFoundError, ConfigSyntaxError, DuplicateServerError
from tests.each_case import each_case

SCALARS = """1, 1e-3, 1.5, .5, -1_000, 0x1f, true, off, null, ~, 2026-01-02, 12:30, '1', a b, .inf"""


@each_case("scalar", SCALARS.split(", "))
def test_scalar_is_parsed_as_in_omegaconf(project, scalar):
    known = OmegaConf.to_container(OmegaConf.create(f"a: {scalar}"))["a"]
    read = project.load_text(f"a: {scalar}").plain["a"]
    assert (read, type(read)) == (known, type(known))


def test_anchors_and_merge_keys_work(project):
    run = project.load_text("base: &base {x: 1, y: 1}\nown:\n  <<: *base\n  y: 2\nsame: *base")
    assert run.plain["own"] == {"x": 1, "y": 2}
    assert run.plain["same"] == {"x": 1, "y": 1}


def test_empty_file_is_an_empty_mapping(project):
    assert project.load_text("# nothing yet\n").servers == {}


@each_case(
    ("text", "place", "expected"),
    [
        ("a: 1\nb: x: y", "main.yaml:2:5:", "Quote a value that contains ': '"),
        ("a:\n\t- x", "main.yaml:2:1:", "spaces, not tabs"),
        ("a: [1, 2\nb: 3", "main.yaml:2:", "Close the bracket"),
        ('a: "x\nb: 1', "main.yaml:", "Close the quote, bracket or brace"),
        ("a:\n  b: 1\n c: 2", "main.yaml:3:2:", "indentation"),
        ("a: {b: ???}", "main.yaml:1:", "Quote ??? and other special characters"),
        ("a: {b: ${c}}", "main.yaml:1:", "quote any ${…} inside it"),
        ("a: *b", "main.yaml:1:4:", "Define the anchor"),
        ("a: 1\n---\nb: 1", "main.yaml:2:1:", "Keep one document per file"),
        ("a: !thing 1", "main.yaml:1:4:", "'!thing'"),
        ("a: 1\nb: {{x}}", "main.yaml:2:", "Put text that contains {braces}"),
        ("a: &a\n  b: *a", "main.yaml:1:", "alias to itself"),
        ("- a\n- b", "main.yaml:1:", "but is a list"),
        ("hello", "main.yaml:1:", "but is a single value"),
        ("a: 1\nb: !!int x", "main.yaml:2:", "'x' is not a valid int"),
        ("a: 1\n0x_: 1", "main.yaml:2:", "'0x_' is not a valid int"),
    ],
)
def test_invalid_file_reports_location(project, text, place, expected):
    message = project.refusal(ConfigSyntaxError, text)
    assert message.startswith(place)
    assert expected in message


def test_duplicate_key_reports_both_lines(project):
    message = project.refusal(ConfigSyntaxError, "x:\n  a: 1\n  b:\n    c: 1\n    c: 2")
    assert message.startswith("main.yaml:5: duplicate key 'x.b.c', first defined at main.yaml:4")


def test_duplicate_server_reports_both_lines(project):
    message = project.refusal(
        DuplicateServerError,
        """
        s:
          resources_servers: {weather: {entrypoint: app.py}}
        other: 1
        s:
          resources_servers: {weather: {entrypoint: app.py}}
        """,
    )
    assert message.startswith("main.yaml:4: duplicate key 's', first defined at main.yaml:1")


def test_binary_file_is_rejected(project, tmp_path):
    (tmp_path / "main.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigSyntaxError, match=r"main\.yaml: not a UTF-8 text file"):
        project.load("+config_paths=[main.yaml]")


def test_path_outside_the_working_folder_is_absolute(project, tmp_path, monkeypatch):
    project.write(main="- a")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    with pytest.raises(ConfigSyntaxError, match=str(tmp_path / "main.yaml")):
        project.load(f"+config_paths=[{tmp_path / 'main.yaml'}]")


def test_path_through_a_file_is_not_found(project):
    project.write(main="a: 1")
    with pytest.raises(ConfigPathNotFoundError):
        project.load("+config_paths=[main.yaml/x.yaml]")
