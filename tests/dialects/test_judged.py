"""Requests with answers to compare: the judged roles are accepted, in their place, and only these."""

import pytest
from pydantic import ValidationError

from nemo_gym.dialects.chat import ResponsesConverter
from nemo_gym.dialects.judged import JUDGED_ROLES, JudgedChatParams, JudgedCreateParams
from nemo_gym.schemas.chat import ChatCompletionCreateParams
from nemo_gym.schemas.responses import ResponseCreateParams

QUESTION = {"role": "user", "content": "Name a fruit."}
JUDGED = [{"role": role, "content": f"The {role}."} for role in JUDGED_ROLES]
CONVERTER = ResponsesConverter(return_token_id_information=False, chat_request=JudgedChatParams)


def converted(items):
    asked = JudgedCreateParams(input=items)
    return CONVERTER.responses_to_chat_completion_create_params(asked).messages


def test_judged_messages_keep_their_place():
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "Rain."}
    found = converted([JUDGED[2], QUESTION, call, output, JUDGED[0], QUESTION, JUDGED[1]])
    roles = ["principle", "user", "assistant", "tool", "response_1", "user", "response_2"]
    assert [message["role"] for message in found] == roles
    assert found[0] == JUDGED[2]


def test_items_survive_a_round_trip():
    asked = JudgedCreateParams(input=[QUESTION, *JUDGED])
    again = JudgedCreateParams.model_validate(asked.model_dump(exclude_unset=True))
    assert again == asked == JudgedCreateParams(input=asked.input)
    assert JudgedCreateParams(input="Hello").input == "Hello"


@pytest.mark.parametrize("role", ["response_3", "judge", "", None, 1, ["user"]])
def test_other_roles_are_rejected(role):
    message = {"role": role, "content": "x"}
    for kind, field in ((JudgedCreateParams, "input"), (JudgedChatParams, "messages")):
        with pytest.raises(ValidationError):
            kind(**{field: [QUESTION, message]})


@pytest.mark.parametrize("role", JUDGED_ROLES)
def test_other_models_reject_judged_roles(role):
    message = {"role": role, "content": "x"}
    for kind, field in ((ResponseCreateParams, "input"), (ChatCompletionCreateParams, "messages")):
        with pytest.raises(ValidationError):
            kind(**{field: [message]})
    usual = ResponsesConverter(return_token_id_information=False)
    with pytest.raises(ValidationError):
        usual.responses_to_chat_completion_create_params(JudgedCreateParams(input=[message]))
