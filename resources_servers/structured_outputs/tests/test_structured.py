"""Validation of documents in five formats: conforming, violating and hostile ones."""

import re

import orjson
import pytest

from resources_servers.structured_outputs.grading import LONGEST_DOCUMENT, SchemaUnusable, first_problem, strict_schema
from resources_servers.structured_outputs.grading.conformance import json_path
from resources_servers.structured_outputs.grading.formats import number_of

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "is_member": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "height_m": {"type": ["number", "null"]}},
        },
    },
}
TABLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "score": {"type": ["number", "null"]}},
    },
}
CONFORMING = {
    "json": '{"name": "Ada", "age": 36, "is_member": true, "tags": ["x"], '
    '"address": {"city": "Oslo", "height_m": 2.5}}',
    "yaml": "name: Ada\nage: 36\nis_member: true\ntags: [x]\naddress:\n  city: Oslo\n  height_m: null\n",
    "toml": 'name = "Ada"\nage = 36\nis_member = true\ntags = ["x"]\n[address]\ncity = "Oslo"\nheight_m = 2\n',
    "xml": "<person><name>Ada</name><age>36</age><is_member>true</is_member><tags>x</tags>"
    "<address><city>Oslo</city><height_m/></address></person>",
}


def problem(text, format_, schema, **options):
    return first_problem(text, format_, orjson.dumps(schema).decode(), **options)


def test_conforming_document_has_no_problem():
    wrong = [
        (format_, found)
        for format_ in CONFORMING
        if (found := problem(CONFORMING[format_], format_, PERSON)) is not None
    ]
    assert wrong == []


def test_first_violation_reports_its_path():
    cases = [
        ("json", "36", '"36"', "$.age"),
        ("json", "36", "-1", "$.age"),
        ("json", "36", "36.5", "$.age"),
        ("json", '["x"]', '["x", 1]', "$.tags[1]"),
        ("json", '"city": "Oslo", ', "", "$.address"),
        ("json", '"name": "Ada", ', "", "$"),
        ("json", '{"name"', '{"more": 1, "name"', "$"),
        ("json", '{"city"', '{"more": 1, "city"', "$.address"),
        ("yaml", "age: 36", "age: thirty-six", "$.age"),
        ("yaml", "  city: Oslo\n", "", "$.address"),
        ("yaml", "name: Ada", "name: 36", "$.name"),
        ("toml", "age = 36", 'age = "36"', "$.age"),
        ("toml", "[address]", "[Address]", "$"),
        ("xml", "<age>36</age>", "<age>old</age>", "$.age"),
        ("xml", "<age>36</age>", "<age>36</age><age>37</age>", "$.age"),
        ("xml", "<age>36</age>", "<age>36</age><size>1</size>", "$"),
        ("xml", "<city>Oslo</city>", "", "$.address"),
        ("xml", "<person>", '<person id="3">', "$"),
        ("xml", "<person>", "<person>hello", "$"),
    ]
    wrong = []
    for format_, old, new, path in cases:
        found = problem(CONFORMING[format_].replace(old, new), format_, PERSON)
        actual = (old in CONFORMING[format_], found.kind, found.path, found.message.startswith(f"{path}: "))
        if actual != (True, "schema_violation", path, True):
            wrong.append((format_, old, new, path, actual))
    assert wrong == []


def test_unreadable_text_is_a_parse_error():
    cases = [
        ("json", "", "not JSON"),
        ("json", "{", "line 1, column 2"),
        ("json", "```json\n{}\n```", "not JSON"),
        ("json", '{"a": NaN}', "not JSON"),
        ("json", '{"a": "\ud800"}', "not Unicode"),
        ("json", "[" * 150 + "]" * 150, "100 levels"),
        ("json", "[" * 50_000, "not JSON"),
        ("yaml", "a: [", "not YAML"),
        ("yaml", "a: 1\n---\na: 2", "not YAML"),
        ("yaml", "a: .nan", "nan is not a JSON number"),
        ("yaml", "a: .inf", "inf is not a JSON number"),
        ("yaml", "a: !!python/object/apply:os.system ['true']", "not YAML"),
        ("yaml", "a: !!binary aGVsbG8=", "bytes is not a JSON value"),
        ("yaml", "a: !!set {x}", "set is not a JSON value"),
        ("yaml", "1.5: 1", "1.5 is not a string"),
        ("yaml", "[1]: 1", "not YAML"),
        ("yaml", "a: &x {b: 1}\nc:\n  <<: *x", "merge keys"),
        ("yaml", "a: &x [*x]", "100 levels"),
        ("yaml", "[" * 150 + "]" * 150, "100 levels"),
        ("yaml", "- " * 50_000, "100 levels"),
        ("yaml", "a: " + "9" * 10_000, "not YAML"),
        ("toml", "a =", "not TOML"),
        ("toml", "a = 1\na = 2", "not TOML"),
        ("toml", "a = nan", "nan is not a JSON number"),
        ("toml", "a = " + "[" * 3_000, "100 levels"),
        ("toml", "a = " + "[" * 150 + "]" * 150, "100 levels"),
        ("xml", "", "not XML"),
        ("xml", "<a>", "not XML"),
        ("xml", "<a></b>", "not XML"),
        ("xml", "<a/><a/>", "not XML"),
        ("xml", "<a>&own;</a>", "not XML"),
        ("xml", "<!DOCTYPE a><a/>", "DTD"),
        ("xml", "<a>" * 150 + "</a>" * 150, "100 levels"),
        ("xml", "<a>" * 60_000, "100 levels"),
        ("xml", "<a \x00/>", "not XML"),
        ("csv", "", "header line is missing"),
        ("csv", "a,a\n1,2", "same name"),
        ("csv", "a,b\n1", "line 2 has 1 cells"),
        ("csv", 'a\n"1', "not CSV"),
        ("csv", "a\n" + "x" * 140_000, "not CSV"),
        ("csv", "a\n", "no row below"),
    ]
    wrong = []
    for format_, text, message in cases:
        found = problem(text, format_, {"type": "object"})
        actual = (found.kind, message in found.message, found.path)
        if actual != ("parse_error", True, ""):
            wrong.append((format_, text, message, actual))
    assert wrong == []


def test_overlong_document_is_too_large():
    wrong = [
        (format_, found)
        for format_ in ["json", "yaml", "xml", "toml", "csv"]
        if (found := problem("x" * (LONGEST_DOCUMENT + 1), format_, PERSON).kind) != "too_large"
    ]
    assert wrong == []


def yaml_bomb():
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(levels)


def merge_bomb():
    return "a0: &a0 {x: 1}\n" + "\n".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)
    )


def entity_bomb():
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 9}">' for n in range(1, 12))
    return f'<!DOCTYPE a [<!ENTITY e0 "boo">{entities}]><a>&e11;</a>'


OUTSIDE = '<!DOCTYPE a [<!ENTITY file SYSTEM "file:///etc/passwd">]><a>&file;</a>'


@pytest.mark.parametrize(
    ("format_", "text"), [("yaml", yaml_bomb()), ("yaml", merge_bomb()), ("xml", entity_bomb()), ("xml", OUTSIDE)]
)
def test_bombs_are_rejected(format_, text):
    assert problem(text, format_, {}).kind == "parse_error"


def test_yaml_is_parsed_into_json_values():
    cases = [
        ("on: 2024-02-29\nat: 12:30", {"on": "string", "at": "string"}),
        (
            "a: 0x1F\nb: 1_000\nc: 1.5\nd: 1e3\ne: .5",
            dict(zip("abcde", ["integer"] * 2 + ["number"] * 3, strict=True)),
        ),
        ("a: &x {b: 1}\nc: *x", {"a": "object", "c": "object"}),
        ("1: one", {"1": "string"}),
        ("a: yes\nb: ~", {"a": "boolean", "b": "null"}),
        ("a: 1.2.3\nb: '5'\nc: 1:2", dict.fromkeys("abc", "string")),
    ]
    wrong = [
        (text, schema, found)
        for text, schema in cases
        if (found := problem(text, "yaml", {"properties": {name: {"type": type_} for name, type_ in schema.items()}}))
        is not None
    ]
    assert wrong == []


def test_formats_are_checked():
    cases = [
        ("json", "date", '{"d": "2024-13-45"}', '{"d": "2024-12-31"}'),
        ("json", "date-time", '{"d": "yesterday"}', '{"d": "2024-12-31T12:30:00Z"}'),
        ("json", "email", '{"d": "ada"}', '{"d": "ada@example.org"}'),
        ("json", "uri", '{"d": "::"}', '{"d": "https://example.org/"}'),
        ("json", "uuid", '{"d": "1"}', '{"d": "123e4567-e89b-12d3-a456-426614174000"}'),
        ("json", "ipv4", '{"d": "300.1.1.1"}', '{"d": "192.0.2.1"}'),
        ("yaml", "date", "d: 2024-13-45", "d: 2024-12-31"),
        ("toml", "date", "d = '2024-13-45'", "d = 2024-12-31"),
        ("csv", "date", "d\n2024-13-45", "d\n2024-12-31"),
        ("xml", "date", "<a><d>2024-13-45</d></a>", "<a><d>2024-12-31</d></a>"),
        ("json", "a-format-of-ours", None, '{"d": "x"}'),
    ]
    wrong = []
    for format_, name, bad, good in cases:
        schema = {"type": "object", "properties": {"d": {"type": "string", "format": name}}}
        if problem(good, format_, schema) or (bad and getattr(problem(bad, format_, schema), "kind", None) is None):
            wrong.append((format_, name, problem(good, format_, schema)))
    assert wrong == []


def test_toml_dates_are_strings():
    dates = {name: {"type": "string", "pattern": "^[0-9T:.-]+$"} for name in ("day", "time", "both")}
    text = "day = 2024-02-29\ntime = 12:30:00\nboth = 2024-02-29T12:30:00"
    assert problem(text, "toml", {"properties": dates}) is None


LIST = {"type": "array", "items": {"type": "integer"}}
OBJECTS = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def test_xml_is_parsed_by_its_schema():
    cases = [
        ("<r><n>1</n><n>2</n></r>", {"properties": {"n": LIST}}),
        ("<r><n>1</n></r>", {"properties": {"n": LIST}}),
        ("<r><n><item>1</item><item>2</item></n></r>", {"properties": {"n": LIST}}),
        ("<r><n/></r>", {"properties": {"n": LIST}}),
        ("<r><o><n>1</n></o></r>", {"properties": {"o": OBJECTS}}),
        ("<r><o><n>1</n></o><o><n>2</n></o></r>", {"properties": {"o": OBJECTS}}),
        ("<r><o><each><n>1</n></each><each><n>2</n></each></o></r>", {"properties": {"o": OBJECTS}}),
        ("<r><item>1</item><item>2</item></r>", LIST),
        ("<r/>", LIST),
        ("<r>5</r>", {"type": "integer"}),
        ("<n>5</n>", {"properties": {"n": {"type": "integer"}}}),
        ("<r><n>5</n></r>", {"properties": {"n": {"type": "integer"}}}),
        ("<n><n>5</n></n>", {"properties": {"n": {"type": "integer"}}}),
        ('<r n="5"/>', {"properties": {"n": {"type": "integer"}}}),
        ('<r n="5">x</r>', {"properties": {"@n": {"type": "integer"}, "#text": {"type": "string"}}}),
        ('<r xmlns:x="urn:x"><n> 5 </n></r>', {"properties": {"n": {"const": 5}}}),
        ("<r><n>null</n><m></m></r>", {"properties": {"n": {"type": "null"}, "m": {"type": "null"}}}),
        ("<r><n>a &lt; b<![CDATA[ & c]]></n></r>", {"properties": {"n": {"const": "a < b & c"}}}),
        ("<r><n/><m/></r>", {"properties": {"n": {"type": "string"}, "m": {"type": "object"}}}),
        ("<r><n>TRUE</n><m>1.50</m></r>", {"properties": {"n": {"enum": [True]}, "m": {"type": "number"}}}),
        ("<r><n>5</n></r>", {"properties": {"n": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}),
        ("<r><n>5</n></r>", {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
        ("<r><n>5</n></r>", {"allOf": [{"properties": {"n": {"type": "integer"}}}]}),
        ("<?xml version='1.0' encoding='UTF-8'?>\n<r>ä</r>", {"const": "ä"}),
    ]
    wrong = [(text, schema, found) for text, schema in cases if (found := problem(text, "xml", schema)) is not None]
    assert wrong == []


@pytest.mark.parametrize(("coerces", "kind"), [(True, None), (False, "schema_violation")])
def test_xml_type_coercion_can_be_disabled(coerces, kind):
    found = problem("<r><n>5</n></r>", "xml", {"properties": {"n": {"type": "integer"}}}, xml_coerce_types=coerces)
    assert (found and found.kind) == kind
    texts = {"properties": {"n": {"type": "array", "items": {"type": "string"}}}}
    assert problem("<r><n>5</n></r>", "xml", texts, xml_coerce_types=coerces) is None


def test_csv_is_a_list_of_objects():
    cases = [
        ("name,age,score\nAda,36,1.5\nBob,40,\n", None),
        ('name,age,score\r\n"A, B",36,null\r\n', None),
        ("score,name,age\n1,Ada,36", None),
        ("name, age, score\nAda, 36, 1.5\nBob, 40, ", None),
        ("name, age, score\nAda, 3 6, 1.5", "$[0].age"),
        ("name,age,score", None),
        ("name,age,score\nAda,36,1\n\nBob,old,1", "$[1].age"),
        ("name,age\nAda,36", "$[0]"),
        ("name,age,score,more\nAda,36,1,2", "$[0]"),
        ("name;age;score\nAda;36;1", "$[0]"),
    ]
    wrong = []
    for text, path in cases:
        found = problem(text, "csv", TABLE)
        if (actual := found and found.path) != path:
            wrong.append((text, path, actual))
    assert wrong == []


def test_object_schema_applies_to_each_csv_row():
    assert problem("name,age,score\nAda,36,1\nBob,2,3", "csv", TABLE["items"]) is None
    assert problem("name,age,score\nAda,36,1\nBob,x,3", "csv", TABLE["items"]).path == "$[1].age"


def test_csv_without_rows_needs_the_schemas_columns():
    by_kind = {
        "properties": {"kind": {"enum": ["a", "b"]}},
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"size": {"type": "integer"}}},
        "else": {"properties": {"name": {"type": "string"}}},
    }
    referenced = {"$defs": {"row": TABLE["items"]}, "type": "array", "items": {"$ref": "#/$defs/row"}}
    refusal = "Sorry, I cannot do that."
    cases = [
        (TABLE, "name,age,score", True),
        (TABLE, "score,age,name\n", True),
        (TABLE, refusal, False),
        (TABLE, "name,age", False),
        (TABLE, "name,age,score,more", False),
        ({**TABLE, "minItems": 1}, "name,age,score", False),
        (referenced, "name,age,score", True),
        (referenced, "name,age", False),
        ({"type": "array", "items": by_kind}, "kind,size", True),
        ({"type": "array", "items": by_kind}, "name,kind", True),
        ({"type": "array", "items": by_kind}, "kind", False),
        ({"type": "array", "items": {"anyOf": [TABLE["items"], by_kind]}}, "age,score,name", True),
        ({"type": "array", "items": {"anyOf": [TABLE["items"], by_kind]}}, "age,score", False),
        ({"type": "array", "items": {"type": "string"}}, refusal, False),
        ({"type": "array", "items": {"type": "object"}}, refusal, False),
        ({"type": "array"}, refusal, False),
        ({}, refusal, False),
        (TABLE["items"], "name,age,score", False),
    ]
    wrong = [case for case in cases if (problem(case[1], "csv", case[0]) is None) != case[2]]
    assert wrong == []


def test_duplicate_key_is_a_parse_error():
    lists = {"properties": {"l": {"type": ["object", "string"]}}}
    cases = [
        ("json", '{"a": 1, "a": 2}', {}),
        ("json", '{"a": 1, "a": 1}', {}),
        ("json", r'{"a": 1, "\u0061": 2}', {}),
        ("json", '[{"b": {"a": "x", "a": 2}}]', {}),
        ("yaml", "a: 1\na: 2", {}),
        ("yaml", "b: [{a: 1, 'a': 2}]", {}),
        ("yaml", "? a\n: 1\n? a\n: 2", {}),
        ("yaml", "1: 2\n0x1: 3", {}),
        ("yaml", "1: 2\n'1': 3", {}),
        ("yaml", "on: 2\n'on': 3", {}),
        ("toml", "a = 1\n'a' = 2", {}),
        ("xml", '<r a="1"><a>2</a></r>', {}),
        ("xml", '<r a="1" a="2"/>', {}),
        ("csv", "a,a\n1,2", {}),
        ("csv", 'l\n"{""a"": 1, ""a"": 2}"', lists),
    ]
    found = [problem(text, format_, schema) for format_, text, schema in cases]
    assert [each and each.kind for each in found] == ["parse_error"] * len(cases)
    assert problem('{"a": 1, "b": {"a": 12345678901234567890.5}}', "json", {}) is None


def test_list_in_a_csv_cell_is_json():
    cases = [('"[1, 2]"', None), ('"[1, ""x""]"', "$[0].list[1]"), ("[", "$[0].list")]
    wrong = []
    for cell, path in cases:
        found = problem(f"list\n{cell}\n", "csv", {"properties": {"list": LIST}})
        if (actual := found and found.path) != path:
            wrong.append((cell, path, actual))
    assert wrong == []


def test_invalid_schema_raises_schema_unusable():
    cases = [
        ("{", "not JSON"),
        ("[]", "a JSON Schema must be an object or a boolean, not of type list"),
        ('{"type": "nope"}', "not a JSON Schema"),
        ('{"allOf": 3}', "not a JSON Schema"),
        ('{"$ref": "http://127.0.0.1:9/x"}', "are not fetched"),
        ('{"$ref": "file:///etc/passwd"}', "are not fetched"),
        ('{"$ref": "#/$defs/none"}', "not a JSON Schema"),
    ]
    wrong = []
    for schema_text, message in cases:
        try:
            wrong.append((schema_text, message, first_problem("{}", "json", schema_text)))
        except SchemaUnusable as error:
            if not re.search(message.replace("[", r"\["), str(error)):
                wrong.append((schema_text, message, str(error)))
    assert wrong == []


def test_strict_schema_requires_and_closes_all_objects():
    schema = {
        "properties": {"properties": {"type": "object", "properties": {"a": {}}}, "open": {"type": "object"}},
        "additionalProperties": {"properties": {"b": {}}},
        "required": [],
        "$defs": {"d": {"properties": {"c": {}}}},
        "not": {"properties": {"e": {}}},
        "items": {"anyOf": [{"properties": {"f": {}}}, {"items": [{"properties": {"g": {}}}]}]},
    }
    assert strict_schema(schema) == {
        "properties": {
            "properties": {
                "type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False,
            },
            "open": {"type": "object"},
        },
        "required": ["properties", "open"],
        "additionalProperties": False,
        "$defs": {"d": {"properties": {"c": {}}, "required": ["c"], "additionalProperties": False}},
        "not": {"properties": {"e": {}}},
        "items": {
            "anyOf": [
                {"properties": {"f": {}}, "required": ["f"], "additionalProperties": False},
                {"items": [{"properties": {"g": {}}, "required": ["g"], "additionalProperties": False}]},
            ]
        },
    }  # fmt: skip


def test_parts_of_all_of_are_one_object():
    cases = [('{"a": 1, "b": 2}', True), ('{"a": 1}', False), ('{"a": 1, "b": 2, "c": 3}', False)]
    wrong = []
    for text, conforms in cases:
        schema = {"allOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}}]}
        if (found := problem(text, "json", schema) is None) != conforms:
            wrong.append((text, conforms, found))
    assert wrong == []


def test_recursive_schema_reaches_every_level():
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
            }
        },
    }
    assert problem('{"v": 1, "next": {"v": 2, "next": null}}', "json", tree) is None
    assert problem("<r><v>1</v><next><v>2</v><next/></next></r>", "xml", tree) is None
    assert problem('{"v": 1, "next": {"v": "2", "next": null}}', "json", tree).path == "$.next"


def test_json_path_quotes_unusual_names():
    assert json_path(["items", 2, "a name", "x"]) == "$.items[2]['a name'].x"


def test_only_plain_numbers_are_parsed():
    cases = [
        ("5", 5), ("-5", -5), ("+5", 5), ("5.", 5.0), (".5", 0.5), ("1e3", 1000.0), ("1E-3", 0.001),
        ("", None), ("x", None), ("1_000", None), ("nan", None), ("inf", None), ("1e999", None), ("5 ", None),
        ("٥", None), ("9" * 2_000, None), ("1.2.3", None), ("--1", None),
    ]  # fmt: skip
    wrong = [(text, number, found) for text, number in cases if (found := number_of(text)) != number]
    assert wrong == []


def test_message_length_is_limited():
    long = "x" * 100_000
    assert len(problem(orjson.dumps({"age": long}).decode(), "json", PERSON).message) <= 500
