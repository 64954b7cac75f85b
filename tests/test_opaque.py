"""Long arrays of token ids stay unparsed text, and everything else is parsed."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.jsonl import dump_line
from nemo_gym.opaque import TOKEN_KEYS, is_valid_array, loads_opaque, plain
from tests.each_case import each_case

IDS = list(range(1000, 1400))
LOGPROBS = [-number / 7 for number in range(200)]


def message(**fields):
    return {"response": {"output": [{"type": "message", **fields}, {"type": "function_call", "arguments": "{}"}]}}


@each_case("key", TOKEN_KEYS)
@each_case("spaced", [False, True])
def test_long_array_is_kept_as_text(key, spaced):
    row = message(**{key: LOGPROBS})
    text = json.dumps(row, indent=1 if spaced else None).encode()
    read = loads_opaque(text)
    assert isinstance(read["response"]["output"][0][key], orjson.Fragment)
    assert orjson.loads(orjson.dumps(read)) == plain(read) == row


@each_case(
    "row",
    [
        message(prompt_token_ids=[1, 2, 3]),
        message(prompt_token_ids=[[1, 2]] * 300),
        message(prompt_token_ids=["7"] * 300),
        message(prompt_token_ids=[None] * 300),
        message(prompt_token_ids=[]),
        message(other_token_ids=IDS),
        message(text='"prompt_token_ids": ' + str(IDS)),
        message(text='\\"prompt_token_ids": ' + str(IDS)),
        {"prompt_token_ids": "x" * 2000},
        [1] * 1000,
    ],
)
def test_other_values_are_parsed_normally(row):
    assert loads_opaque(orjson.dumps(row)) == row


@each_case("line_break", [b"\n", b"\r\n"])
def test_indented_array_stays_on_its_line(line_break):
    text = b'{"prompt_token_ids": [%b]}' % (b"," + line_break).join([b"1000"] * 300)
    line = dump_line(loads_opaque(text))
    assert line.splitlines() == [line.rstrip(b"\n")]
    assert orjson.loads(line) == {"prompt_token_ids": [1000] * 300}


@each_case("rest", ["2", "-2.5", "1e300", " 7", "9" * 308])
def test_array_of_numbers_is_valid(rest):
    assert is_valid_array(f"[{'1,' * 300}{rest}]".encode())


@each_case("rest", [",2", "01", "1-2", "1.", ".5", "+1", "2,", "1 2", "1e999", "9" * 310])
def test_array_with_malformed_number_is_invalid(rest):
    assert not is_valid_array(f"[{'1,' * 300}{rest}]".encode())


def test_several_arrays_keep_their_order():
    row = {
        "output": [{"generation_token_ids": [number] * 300, "generation_log_probs": LOGPROBS} for number in range(5)]
    }
    read = loads_opaque(orjson.dumps(row))
    assert all(isinstance(each["generation_token_ids"], orjson.Fragment) for each in read["output"])
    assert plain(read) == row


@each_case("text", [b"", b"{", b'{"prompt_token_ids": [' + b"1," * 600, b'{"a": 1,}' + b" " * 600])
def test_invalid_json_is_rejected(text):
    with pytest.raises(orjson.JSONDecodeError):
        loads_opaque(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.just([7] * 300),
    lambda children: st.lists(children) | st.dictionaries(st.sampled_from([*TOKEN_KEYS, "a", "b"]), children),
)


@given(values)
def test_any_value_round_trips(value):
    assert plain(loads_opaque(orjson.dumps(value))) == value


@each_case("number", [b"NaN", b"-Infinity", b"[2]", b'"2"', b"0x1"])
def test_arrays_of_anything_else_are_not_kept(number):
    text = b'{"generation_log_probs": [%b%b]}' % (b"-0.5," * 300, number)
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        with pytest.raises(orjson.JSONDecodeError):
            loads_opaque(text)
    else:
        assert loads_opaque(text) == expected
