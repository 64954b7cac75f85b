"""Tests of the shapes of JSON in pydantic models."""

import pytest
from pydantic import ValidationError

from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.responses import ResponseCreateParams


def test_other_keys_stay_in_their_order():
    tool = {"zone": 1, "name": "look", "area": None, "type": "function"}
    message = {"zone": 1, "content": "Hi", "area": None, "role": "user"}
    request = ResponseCreateParams(input="Hi", tools=[tool])
    asked = ChatCompletionCreateParams(messages=[message], tools=[tool])
    assert [list(request.tools[0].items()), list(asked.tools[0].items())] == [list(tool.items())] * 2
    assert list(asked.messages[0].items()) == list(message.items())


def test_only_objects_have_a_shape():
    with pytest.raises(ValidationError, match="should be a valid dictionary"):
        ChatCompletionCreateParams(messages=[], tools=["look"])
