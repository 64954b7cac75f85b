"""Command-line overrides."""

from __future__ import annotations

import pytest

from nemo_gym.config.overrides import parse_override
from nemo_gym.config.tree import plain
from nemo_gym.config.values import read_value, written
from nemo_gym.errors import OverrideError
from tests.each_case import each_case

TEXT = """
agent:
  max_steps: 10
  names: [a, b]
  tools:
    - {name: x}
empty:
"""


@each_case(
    ("written", "expected"),
    [
        ("3", 3),
        ("-1_000", -1000),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("inf", float("inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", ""),
        ("yes", "yes"),
        ("007", "007"),
        ("12:30", "12:30"),
        ("a: b", "a: b"),
        ("a,b", "a,b"),
        ("a#b", "a#b"),
        ("http://host:8000/v1?x=1", "http://host:8000/v1?x=1"),
        ("'3'", "3"),
        ('"it is, [so]"', "it is, [so]"),
        ("'it\\'s'", "it's"),
        ("[]", []),
        ("[x,y]", ["x", "y"]),
        ("[ 1, 'two' , [3], null ]", [1, "two", [3], None]),
        ("[http://a:1/v1,http://b:2/v1]", ["http://a:1/v1", "http://b:2/v1"]),
        ("{}", {}),
        ("{k: v}", {"k": "v"}),
        ("{k:v}", {"k": "v"}),
        ("{k:1,n:{x:[a,2]},u:http://h:1}", {"k": 1, "n": {"x": ["a", 2]}, "u": "http://h:1"}),
        ("{'a b': 1}", {"a b": 1}),
        ("a\\,b", "a,b"),
        ("[a\\,b]", ["a,b"]),
    ],
)
def test_value_is_parsed_as_in_hydra(project, written, expected):
    read = project.load(f"+value={written}").plain["value"]
    assert (read, type(read)) == (expected, type(expected))


@each_case(
    "value",
    [
        *(
            "",
            "3",
            "null",
            "true",
            " a b ",
            'it\'s "so"',
            "a\\b",
            "[x]",
            "{k: v}",
            "two\nlines",
            "${other}",
            "sk-1, b",
        ),
        *(0, -5, 1.5, 1e-7, 1e22, float("inf"), True, False, None, [], {}),
        [1, "1", [None, "a,b"], {"k": ["}"]}],
        {"a b": 1, "c": {"d:e": "f"}, "1": "${x}"},
    ],
)
def test_written_value_is_read_as_the_same_value(value):
    read = read_value(written(value), "word")
    assert (read, type(read)) == (value, type(value))


@each_case(
    ("given", "argument"),
    [
        ("+a.b=[1,x]", '++a.b=[1,"x"]'),
        ("++a={k: 'v w'}", '++a={"k":"v w"}'),
        ("a=1.5", "a=1.5"),
        ("~a.b", "~a.b"),
        ("~a=x", '~a="x"'),
    ],
)
def test_override_can_be_written_as_one_argument(given, argument):
    parsed = parse_override(given)
    assert parsed.as_argument() == argument
    again = parse_override(argument)
    assert (again.action, again.path) == (parsed.action, parsed.path)
    assert (again.value is None) == (parsed.value is None)
    assert again.value is None or plain(again.value) == plain(parsed.value)


def test_list_may_contain_interpolations(project):
    assert project.load("+a=1", "+b=[${a},x${oc.select:nope,2}]").plain["b"] == [1, "x2"]


@each_case("sign", ["+", "++", ""])
def test_each_sign_sets_a_key_that_exists(project, sign):
    assert project.load_text(TEXT, f"{sign}agent.max_steps=3").plain["agent"]["max_steps"] == 3


@pytest.mark.parametrize("sign", ["+", "++"])
def test_plus_adds_a_key_and_missing_parents(project, sign):
    assert project.load_text(TEXT, f"{sign}new.deep.key=3").plain["new"] == {"deep": {"key": 3}}


def test_mapping_is_merged_with_existing_one(project):
    agent = project.load_text(TEXT, "+agent={max_steps: 4, more: 1}").plain["agent"]
    assert (agent["max_steps"], agent["more"], agent["names"]) == (4, 1, ["a", "b"])


def test_words_apply_in_order(project):
    assert project.load_text(TEXT, "~agent", "+agent.x=1", "agent.x=2").plain["agent"] == {"x": 2}


@pytest.mark.parametrize("key", ["agent.tools[0].name", "agent.tools.0.name"])
def test_an_item_of_a_list_can_be_reached(project, key):
    assert project.load_text(TEXT, f"{key}=y").plain["agent"]["tools"] == [{"name": "y"}]


def test_an_empty_value_can_become_a_mapping(project):
    assert project.load_text(TEXT, "+empty.x=1").plain["empty"] == {"x": 1}


def test_name_with_dots_can_be_reached(project):
    assert project.load_text("gpt-4.1: {size: 1}", "gpt-4.1.size=2").plain["gpt-4.1"] == {"size": 2}


def test_a_tilde_deletes(project):
    assert project.load_text(TEXT, "~agent.names", "~agent.tools").plain["agent"] == {"max_steps": 10}
    assert "max_steps" not in project.load_text(TEXT, "~agent.max_steps=10").plain["agent"]


def test_an_inherited_key_can_be_changed_and_deleted(project):
    text = "base: {a: 1, b: {x: 1, y: 2}}\nown: {_inherit_from: base, b: {z: 3}}"
    assert project.load_text(text, "own.b.x=5").plain["own"] == {"a": 1, "b": {"x": 5, "y": 2, "z": 3}}
    assert project.load_text(text, "~own.b").plain["own"] == {"a": 1}
    assert project.load_text(text, "~own.b.x").plain["own"] == {"a": 1, "b": {"y": 2, "z": 3}}


@each_case(
    ("word", "expected"),
    [
        ("agent.max_step=3", "Did you mean 'agent.max_steps'? To add it, write --agent.max_step VALUE"),
        ("max_steps=3", "Did you mean 'agent.max_steps'?"),
        ("~agent.max_step", "the key agent.max_step does not exist. Did you mean 'agent.max_steps'?"),
        ("~agents.max_step", "the key agents.max_step does not exist. Did you mean 'agent.max_steps'?"),
        ("~agent.max_steps=11", "agent.max_steps is 10 (main.yaml:2), so it is not deleted"),
        ("+agent.max_steps.x=1", "agent.max_steps is 10 (main.yaml:2), not a mapping"),
        ("+agent.tools[3].name=y", "the list at main.yaml:4 has 1 items"),
        ("agent", "has no '='. Write --agent VALUE to set a value"),
        ("--limit=3", "is not a known flag"),
        ("b.yaml]", "quote the whole word"),
        ("+a=[1,", "a '[' is not closed"),
        ("+a={k:1", "a '{' is not closed"),
        ("+a={k}", "no ':' after 'k'"),
        ("+a='x", "a quote (') is not closed"),
        ("+a=[1]x", "unexpected text after the value: 'x'"),
        ("=3", "no key before '='"),
        ("=", "no key before '='. Write a setting as --KEY VALUE"),
        ("+a b=3", "the key 'a b' is not a dotted name"),
        ("a..b=3", "the key 'a..b' is not a dotted name"),
    ],
)
def test_invalid_word_reports_problem_and_remedy(project, word, expected):
    message = project.refusal(OverrideError, TEXT, word)
    assert message.startswith(f"'{word}'")
    assert expected in message


@each_case("key", ["agent.tools.nope", "agents.tools.nope", "agent.tools.agent"])
def test_block_above_is_not_suggested_for_deletion(project, key):
    message = project.refusal(OverrideError, TEXT, f"~{key}")
    assert message == f"'~{key}': the key {key} does not exist."


@each_case(
    ("word", "shown"),
    [
        ("+policy_api_key='s3cret", "'+policy_api_key=****'"),
        ("+model={api_key: s3cret, sizes: [", "'+model={api_key: ****, sizes: ['"),
        ("+header=[Bearer s3cret", "'+header=[Bearer ****'"),
        ("+agent.max_steps.token=s3cret", "'+agent.max_steps.token=****'"),
    ],
)
def test_a_message_hides_the_secrets_of_a_word(project, word, shown):
    message = project.refusal(OverrideError, TEXT, word)
    assert message.startswith(shown)
    assert "s3cret" not in message
