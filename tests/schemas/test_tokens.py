"""The tokens of an item: unparsed until they are read, and always plain lists for whoever reads them."""

from __future__ import annotations

import copy
import pickle

import orjson
import pytest

from nemo_gym import ModelFailed
from nemo_gym.schemas.items import FunctionToolCallForTraining
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS, Unparsed
from tests.each_case import each_case

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -1.0]}
CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1", **TOKENS}


def unparsed_call(**arrays: bytes) -> FunctionToolCallForTraining:
    texts = {name: orjson.dumps(value) for name, value in TOKENS.items()} | arrays
    return FunctionToolCallForTraining(**CALL | {name: Unparsed(name, text) for name, text in texts.items()})


@each_case("name", REQUIRED_TOKEN_METADATA_FIELDS)
def test_field_is_a_plain_list(name):
    item = unparsed_call()
    assert type(getattr(item, name)) is list
    assert getattr(item, name) == TOKENS[name]
    # A change of the list stays.
    getattr(item, name).append(7)
    assert getattr(item, name)[-1] == 7


@each_case(
    "read",
    [
        lambda item: item.model_dump(exclude_unset=True),
        lambda item: orjson.loads(item.model_dump_json(exclude_unset=True)),
        lambda item: {name: value for name, value in item if name in CALL},
        lambda item: copy.deepcopy(item).model_dump(exclude_unset=True),
        lambda item: pickle.loads(pickle.dumps(item)).model_dump(exclude_unset=True),
        lambda item: item.model_copy().model_dump(exclude_unset=True),
    ],
)
def test_dumps_and_copies_have_all_tokens(read):
    dumped = read(unparsed_call())
    assert dumped == CALL
    assert {type(dumped[name]) for name in TOKENS} == {list}


def test_unparsed_item_equals_the_parsed_one():
    assert unparsed_call() == FunctionToolCallForTraining(**CALL)
    assert unparsed_call(prompt_token_ids=b"[1, 3]") != FunctionToolCallForTraining(**CALL)
    assert "prompt_token_ids=[1, 2]" in repr(unparsed_call())


@each_case("text", [b"[1,,2]", b"[1.5]", b"[1 2]", b"[]]", b"[-]", b"[01]"])
def test_invalid_array_fails_the_one_who_reads(text):
    item = unparsed_call(prompt_token_ids=text)
    assert item.generation_token_ids == [3, 4]
    with pytest.raises(ModelFailed, match="prompt_token_ids of the model's answer is invalid"):
        _ = item.prompt_token_ids


def test_missing_and_deleted_fields_raise_attribute_errors():
    item = unparsed_call()
    del item.prompt_token_ids
    item.generation_token_ids = [9]
    assert not hasattr(item, "prompt_token_ids")
    assert not hasattr(FunctionToolCallForTraining, "prompt_token_ids")
    assert item.generation_token_ids == [9]
