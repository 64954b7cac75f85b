"""`_inherit_from`, `_copy` and `_delete_key`."""

from __future__ import annotations

import itertools

from nemo_gym.errors import ConfigError, ConfigMissingValuesError, InheritPathNotFoundError
from tests.each_case import each_case


def loaded(project, text, *words):
    return {key: value for key, value in project.load_text(text, *words).plain.items() if key != "config_paths"}


def test_inherit_from_merges_and_removes_its_source(project):
    text = """
    generic: {x: 1, deep: {a: 1, b: 1}, l: [1, 2]}
    own:
      _inherit_from: generic
      deep: {b: 2}
      l: [3]
    """
    assert loaded(project, text) == {"own": {"x": 1, "deep": {"a": 1, "b": 2}, "l": [3]}}


def test_copy_keeps_its_source(project):
    text = "generic: {x: 1}\nown: {_copy: generic, y: 2}"
    assert loaded(project, text) == {"generic": {"x": 1}, "own": {"x": 1, "y": 2}}


def test_string_forms_replace_a_whole_value(project):
    text = "generic: {a: {x: 1}, b: 2}\nmoved: ${inherit_from:generic.a}\ncopied: ${copy:generic.b}"
    assert loaded(project, text) == {"generic": {"b": 2}, "moved": {"x": 1}, "copied": 2}


def test_the_string_forms_work_on_the_command_line(project):
    text = "generic: {a: {x: 1}}\nown: {y: 1}"
    assert loaded(project, text, "+own=${inherit_from:generic.a}") == {"generic": {}, "own": {"x": 1}}


@each_case("names", ["x,deep", "[x, deep]", '"x, deep"'])
def test_delete_key_drops_own_and_inherited_keys(project, names):
    text = f"generic: {{x: 1, y: 2}}\nown: {{_inherit_from: generic, _delete_key: {names}, deep: {{a: 1}}, z: 3}}"
    if names == "x,deep":
        text = text.replace(names, f"'{names}'")
    assert loaded(project, text) == {"own": {"y": 2, "z": 3}}


@each_case("names", ["x,deep.a,absent", "[x, deep.a, absent]"])
def test_delete_key_alone_ignores_absent_keys(project, names):
    project.write(base="own: {x: 1, y: 2, deep: {a: 1, b: 2}}")
    text = f"config_paths: [base.yaml]\nown: {{_delete_key: {names}, z: 3}}"
    if names[0] != "[":
        text = text.replace(names, f"'{names}'")
    assert loaded(project, text) == {"own": {"y": 2, "deep": {"b": 2}, "z": 3}}


@each_case("paths", ["[base.yaml,over.yaml]", "[over.yaml,base.yaml]", "[over_with_base.yaml]"])
def test_delete_key_replaces_an_implementation(project, paths):
    over = "s: {resources_servers: {_delete_key: weather, mcqa: {entrypoint: app.py, y: 2}}}"
    project.write(base="s: {resources_servers: {weather: {entrypoint: app.py, x: 1}}}", over=over)
    project.write(over_with_base=f"config_paths: [base.yaml]\n{over}")
    server = project.load(f"+config_paths={paths}").servers["s"]
    assert (server.implementation, server.settings) == ("mcqa", {"entrypoint": "app.py", "y": 2})


def test_delete_key_without_replacement_removes_a_server(project):
    project.write(base="s: {resources_servers: {weather: {entrypoint: app.py}}}\nkept: 1")
    run = project.load_text("config_paths: [base.yaml]\n_delete_key: s")
    assert (run.servers, "s" in run.raw, run.plain["kept"]) == ({}, False, 1)


def test_several_blocks_may_inherit_from_one_source(project):
    text = "generic: {x: 1}\na: {_inherit_from: generic, y: a}\nb: {_inherit_from: generic, y: b}"
    assert loaded(project, text) == {"a": {"x": 1, "y": "a"}, "b": {"x": 1, "y": "b"}}


BLOCKS = [
    "first: {x: 1, y: 1, z: 1}",
    "second: {_inherit_from: first, y: 2, z: 2}",
    "third: {_inherit_from: second, z: 3}",
]


@each_case("blocks", list(itertools.permutations(BLOCKS)))
def test_a_chain_works_in_any_order(project, blocks):
    assert loaded(project, "\n".join(blocks)) == {"third": {"x": 1, "y": 2, "z": 3}}


def test_source_may_be_inside_an_inheriting_block(project):
    text = "base: {part: {x: 1}}\nmid: {_copy: base}\nown: {_copy: mid.part, y: 2}"
    assert loaded(project, text)["own"] == {"x": 1, "y": 2}


def test_nested_directive_of_a_source_is_applied(project):
    text = "leaf: {x: 1}\nsource: {part: {_copy: leaf}}\nown: {_inherit_from: source}"
    assert loaded(project, text) == {"leaf": {"x": 1}, "own": {"part": {"x": 1}}}


def test_inherited_generic_server_is_not_started(project):
    run = project.load_text(
        """
        generic:
          resources_servers:
            weather: {entrypoint: app.py, prompt: '???'}
        mine:
          _inherit_from: generic
          resources_servers:
            weather: {prompt: hello}
        """
    )
    assert list(run.servers) == ["mine"]
    assert run.servers["mine"].settings == {"entrypoint": "app.py", "prompt": "hello"}
    assert str(run.servers["mine"].origins["entrypoint"]) == "main.yaml:3"
    assert str(run.servers["mine"].origins["prompt"]) == "main.yaml:7"


def test_overrides_apply_to_a_source_before_inheritance(project):
    assert loaded(project, "generic: {x: 1}\nown: {_inherit_from: generic}", "generic.x=2") == {"own": {"x": 2}}


def test_an_unset_source_makes_the_target_unset(project):
    message = project.refusal(ConfigMissingValuesError, "generic: ???\nown:\n  x: ${inherit_from:generic}")
    assert message.startswith("main.yaml:3: own.x has no value")
    assert "generic" not in message


def test_missing_source_reports_location_and_suggestion(project):
    message = project.refusal(
        InheritPathNotFoundError, "generic: {server: {x: 1}}\nown:\n  _inherit_from: generic.servr"
    )
    assert message.startswith("main.yaml:3: own inherits from 'generic.servr'")
    assert "Did you mean 'generic.server'?" in message


def test_cycle_lists_its_blocks(project):
    text = "a: {_inherit_from: b}\nb: {_copy: c}\nc: {_inherit_from: a}"
    message = project.refusal(ConfigError, text)
    assert "a (main.yaml:1) -> b (main.yaml:2) -> c (main.yaml:3) -> a" in message


@each_case("text", ["a: {_copy: a}", "a: {_copy: a.b, b: {x: 1}}", "a: {b: {_copy: a}}"])
def test_block_that_inherits_from_itself_is_a_cycle(project, text):
    assert "in a cycle" in project.refusal(ConfigError, text)


@each_case(
    ("text", "expected"),
    [
        ("g: {x: 1}\na: {_inherit_from: g, _delete_key: xx}", "main.yaml:2: a._delete_key lists 'xx'"),
        ("g: {}\na:\n  _copy: g\n  _inherit_from: g", "main.yaml:3: a has both"),
        ("a:\n  _copy: [g]", "main.yaml:2: a._copy must be the dotted path of another block"),
        ("g: 5\na:\n  _copy: g\n  x: 1", "main.yaml:3: a adds keys to 'g', which is not a mapping"),
    ],
)
def test_invalid_directive_reports_location(project, text, expected):
    assert expected in project.refusal(ConfigError, text)
