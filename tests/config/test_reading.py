"""Reading one YAML file: its scalars, its line numbers, its mistakes."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import ConfigPathNotFoundError, ConfigSyntaxError, DuplicateServerError

SCALARS = """1, 1e-3, 1.5, .5, -1_000, 0x1f, true, off, null, ~, 2026-01-02, 12:30, '1', a b, .inf"""


@pytest.mark.parametrize("scalar", SCALARS.split(", "))
def test_a_scalar_means_what_it_means_to_omegaconf(project, scalar):
    known = OmegaConf.to_container(OmegaConf.create(f"a: {scalar}"))["a"]
    read = project.load_text(f"a: {scalar}").plain["a"]
    assert (read, type(read)) == (known, type(known))


def test_anchors_and_merge_keys_work(project):
    run = project.load_text("base: &base {x: 1, y: 1}\nown:\n  <<: *base\n  y: 2\nsame: *base")
    assert run.plain["own"] == {"x": 1, "y": 2}
    assert run.plain["same"] == {"x": 1, "y": 1}


def test_an_empty_file_says_nothing(project):
    assert project.load_text("# nothing yet\n").servers == {}


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("a: 1\nb: x: y", "main.yaml:2:5:", "needs quotes"),
        ("a:\n\t- x", "main.yaml:2:1:", "spaces, not tabs"),
        ("a: [1, 2\nb: 3", "main.yaml:2:", "not closed"),
        ('a: "x\nb: 1', "main.yaml:", "A quote, a bracket or a brace is not closed"),
        ("a:\n  b: 1\n c: 2", "main.yaml:3:2:", "indentation"),
        ("a: {b: ???}", "main.yaml:1:", "??? and other signs need quotes"),
        ("a: {b: ${c}}", "main.yaml:1:", "${…} in it has no quotes"),
        ("a: *b", "main.yaml:1:4:", "needs its anchor"),
        ("a: 1\n---\nb: 1", "main.yaml:2:1:", "One file holds one document"),
        ("a: !thing 1", "main.yaml:1:4:", "'!thing'"),
        ("a: 1\nb: {{x}}", "main.yaml:2:", "needs quotes"),
        ("a: &a\n  b: *a", "main.yaml:1:", "no end"),
        ("- a\n- b", "main.yaml:1:", "this one is a list"),
        ("hello", "main.yaml:1:", "this one is a single value"),
    ],
)
def test_a_file_that_is_no_yaml_or_no_mapping_is_told_with_its_place(project, text, place, told):
    message = project.refusal(ConfigSyntaxError, text)
    assert message.startswith(place)
    assert told in message


def test_a_key_written_twice_is_told_with_both_lines(project):
    message = project.refusal(ConfigSyntaxError, "x:\n  a: 1\n  b:\n    c: 1\n    c: 2")
    assert message.startswith("main.yaml:5: the key 'x.b.c' was already written at main.yaml:4")


def test_a_server_written_twice_in_one_file_is_told_with_both_lines(project):
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
    assert message.startswith("main.yaml:4: the key 's' was already written at main.yaml:1")


def test_a_file_that_is_not_text_is_told(project, tmp_path):
    (tmp_path / "main.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigSyntaxError, match=r"main\.yaml: this is not a text file in UTF-8"):
        project.load("+config_paths=[main.yaml]")


def test_a_place_outside_the_working_folder_is_told_in_full(project, tmp_path, monkeypatch):
    project.write(main="- a")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    with pytest.raises(ConfigSyntaxError, match=str(tmp_path / "main.yaml")):
        project.load(f"+config_paths=[{tmp_path / 'main.yaml'}]")


def test_a_path_that_leads_through_a_file_is_not_found(project):
    project.write(main="a: 1")
    with pytest.raises(ConfigPathNotFoundError):
        project.load("+config_paths=[main.yaml/x.yaml]")
