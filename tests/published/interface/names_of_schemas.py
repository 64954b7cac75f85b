"""Published names of requests and responses."""

from __future__ import annotations

import importlib

from tests.published.interface.shapes import (
    NOTHING_IN_PARTICULAR,
    STRICT,
    P,
    Row,
    derived_from,
    extra,
    fields,
    frozen,
    is_callable,
    is_the,
    methods,
    reads,
    signature,
    value,
)

TOKENS = "prompt_token_ids! generation_token_ids! generation_log_probs! routed_experts=None"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT_ITEM = {"type": "message", "role": "user", "content": "hi"}
RESPONSE_FIELDS = "id! created_at! model! output! incomplete_details=None usage=None error=None instructions=None"
C = "tests/schemas/test_openai_conformance.py::"
ROWS = [
    Row(3, "openai_utils", "NeMoGymResponse", (fields(RESPONSE_FIELDS), extra("allow")),
        f"{C}test_unknown_response_fields_survive_at_every_level"),
    Row(6, "openai_utils", "NeMoGymResponseCreateParamsNonStreaming", (
        STRICT,
        fields(
            "background=None include=None input! instructions=None max_output_tokens=None max_tool_calls=None "
            "metadata=None model=None parallel_tool_calls=True previous_response_id=None prompt=None reasoning=None "
            "service_tier=None store=None temperature=None text=None tool_choice='auto' tools=[] top_logprobs=None "
            "top_p=None truncation=None user=None stream=None conversation=None context_management=None "
            "prompt_cache_key=None prompt_cache_retention=None safety_identifier=None stream_options=None"
        ),
    ), f"{C}test_unknown_request_fields_depend_on_the_api"),
    Row(10, "openai_utils", "NeMoGymEasyInputMessage", (
        fields("content! role! type='message'"), reads(TEXT_ITEM, {**TEXT_ITEM, "role": "tool"}),
    ), "test_item_type_is_sent_even_if_unset"),
    Row(11, "openai_utils", "NeMoGymResponseOutputMessage", (
        fields("id! content! role='assistant' status='completed' type='message'"),
    ), "test_item_type_is_sent_even_if_unset"),
    Row(12, "openai_utils", "NeMoGymResponseOutputText", (
        fields("annotations=[] text! type='output_text' logprobs=None"),
    ), "test_item_type_is_sent_even_if_unset"),
    Row(17, "openai_utils", "NeMoGymResponseFunctionToolCall", (
        fields("arguments! call_id! name! type='function_call' id=None status=None"),
    ), "test_item_type_is_sent_even_if_unset"),
    Row(20, "openai_utils", "NeMoGymFunctionCallOutput", (
        fields("call_id! output! type='function_call_output' id=None status=None"),
    ), "test_item_type_is_sent_even_if_unset"),
    Row(25, "openai_utils", "NeMoGymResponseReasoningItem", (
        fields("id! summary! type='reasoning' encrypted_content=None content=None"),
    ), "test_status_of_reasoning_is_ignored"),
    Row(27, "openai_utils", "NeMoGymSummary", (fields("text! type='summary_text'"),),
        "test_item_type_is_sent_even_if_unset"),
    Row(29, "openai_utils", "NeMoGymChatCompletionCreateParamsNonStreaming", (
        fields("messages! model=None tools=None temperature=None max_tokens=None top_p=None stream=None"),
        extra("ignore"),
    ), f"{C}test_unknown_request_fields_depend_on_the_api"),
    Row(31, "openai_utils", "NeMoGymResponseUsage", (
        fields("input_tokens=0 output_tokens=0 total_tokens=0"), methods(sum_from_list="(usages)"),
    ), "test_usages_with_unknown_counts_are_added"),
    Row(34, "openai_utils", "NeMoGymChatCompletion", (
        fields("id! choices! created! model! object='chat.completion' usage=None"), extra("allow"),
    ), f"{C}test_chat_completion_round_trips"),
    Row(36, "openai_utils", "NeMoGymResponseInputTokensDetails", (
        fields("cached_tokens=None"), reads({"cached_tokens": None}, {"cached_tokens": "some"}),
    ), "test_usages_with_unknown_counts_are_added"),
    Row(37, "openai_utils", "NeMoGymResponseOutputTokensDetails", (
        fields("reasoning_tokens=None"), reads({"reasoning_tokens": None}, {"reasoning_tokens": "some"}),
    ), "test_usages_with_unknown_counts_are_added"),
    Row(40, "openai_utils", "NeMoGymResponseOutputItem", (
        reads(TEXT_ITEM, {"role": "user", "content": "hi"}),
    ), f"{C}test_only_request_messages_may_omit_their_type"),
    Row(46, "openai_utils", "accumulate_response_usage", (signature("(total, additional)"),),
        "test_usages_with_unknown_counts_are_added"),
    Row(53, "openai_utils", "NeMoGymAsyncOpenAI", (
        fields("base_url! api_key! internal=False default_headers={}"),
        methods(
            create_models="async (self, **kwargs)",
            create_chat_completion="async (self, **kwargs)",
            create_completion="async (self, **kwargs)",
            create_response="async (self, **kwargs)",
            create_tokenize="async (self, **kwargs)",
        ),
    ), "tests/http/test_external.py::test_every_call_reaches_its_route"),
    Row(58, "openai_utils", "NeMoGymResponseOutputRefusal", (fields("refusal! type='refusal'"),),
        "test_item_type_is_sent_even_if_unset"),
    Row(71, "openai_utils", "NeMoGymChatCompletionMessage", (
        fields("role='assistant' content=None refusal=None tool_calls=None"), extra("allow"),
    ), f"{C}test_chat_completion_round_trips"),
    Row(72, "openai_utils", "NeMoGymChoice", (fields("finish_reason! index! message! logprobs=None"),),
        f"{C}test_chat_completion_round_trips"),
    Row(73, "openai_utils", "NeMoGymResponseOutputMessageForTraining", (
        fields(f"id! content! role='assistant' status='completed' type='message' {TOKENS}"),
        derived_from("NeMoGymResponseOutputMessage", "TokenIDLogProbMixin"),
    ), f"{C}test_token_fields_are_all_or_nothing"),
    Row(74, "responses_converter", "ResponsesConverter", (
        signature("(*, return_token_id_information, uses_reasoning_parser=True)"),
        methods(
            responses_to_chat_completion_create_params="(self, responses_create_params)",
            chat_completion_to_responses_create_params="(self, chat_completion_create_params)",
            chat_completion_to_response="(self, responses_create_params, chat_completion)",
        ),
    ), f"{P}test_responses_converter.py::test_ids_come_from_a_patched_uuid4"),
    Row(84, "openai_utils", "NeMoGymResponseInput", (reads([TEXT_ITEM], "hi"),), NOTHING_IN_PARTICULAR),
    Row(90, "openai_utils", "NeMoGymMessage", (fields("content! role! status=None type='message'"),),
        "test_item_type_is_sent_even_if_unset"),
    Row(91, "openai_utils", "NeMoGymResponseInputItem", (
        reads(TEXT_ITEM, {"role": "user"}),
    ), f"{C}test_only_request_messages_may_omit_their_type"),
    Row(92, "openai_utils", "RATE_LIMIT_ERROR_CODES", (value([429, 502, 503, 504, 520]),), NOTHING_IN_PARTICULAR),
    Row(93, "openai_utils", "RETRY_ERROR_CODES", (value([429, 502, 503, 504, 520, 500]),), NOTHING_IN_PARTICULAR),
    Row(94, "responses_converter", "VLLMConverter", (
        is_the(importlib.import_module("nemo_gym.responses_converter"), "ResponsesConverter"),
    ), f"{P}test_responses_converter.py::test_both_names_are_the_same_class"),
    Row(95, "responses_converter", "split_responses_input_output_items", (signature("(items)"),),
        f"{P}test_responses_converter.py::test_input_is_split_from_assistant_output"),
    Row(126, "openai_utils", "NeMoGymChatCompletionAssistantMessageForTrainingParam", (
        reads({"role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_token_ids": [2],
               "generation_log_probs": [-0.5]}, {"role": "assistant", "prompt_token_ids": [1]}),
    ), f"{C}test_token_fields_are_all_or_nothing"),
    Row(127, "openai_utils", "NeMoGymChatCompletionAssistantMessageParam", (
        reads({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"content": "x"}),
    ), NOTHING_IN_PARTICULAR),
    Row(128, "openai_utils", "NeMoGymChatCompletionContentPartTextParam", (
        reads({"type": "text", "text": "x"}, {"type": "text"}),
    ), NOTHING_IN_PARTICULAR),
    Row(129, "openai_utils", "NeMoGymChatCompletionMessageForTraining", (
        fields(f"role='assistant' content=None refusal=None tool_calls=None {TOKENS}"),
        derived_from("NeMoGymChatCompletionMessage"),
    ), f"{C}test_tokens_round_trip"),
    Row(130, "openai_utils", "NeMoGymChatCompletionMessageParam", (
        reads({"role": "developer", "content": "x"}, {"role": "stranger", "content": "x"}),
    ), f"{C}test_invalid_chat_message_is_rejected"),
    Row(131, "openai_utils", "NeMoGymChatCompletionMessageToolCall", (fields("id! function! type='function'"),),
        "test_item_type_is_sent_even_if_unset"),
    Row(132, "openai_utils", "NeMoGymChatCompletionMessageToolCallFunctionParam", (
        reads({"name": "f", "arguments": "{}"}, {"name": "f"}),
    ), NOTHING_IN_PARTICULAR),
    Row(133, "openai_utils", "NeMoGymChatCompletionMessageToolCallParam", (
        reads(CALL, {**CALL, "type": "custom"}),
    ), NOTHING_IN_PARTICULAR),
    Row(134, "openai_utils", "NeMoGymChatCompletionSystemMessageParam", (
        reads({"role": "system", "content": "x"}, {"role": "user", "content": "x"}),
    ), NOTHING_IN_PARTICULAR),
    Row(135, "openai_utils", "NeMoGymChatCompletionToolMessageParam", (
        reads({"role": "tool", "content": "x", "tool_call_id": "c"}, {"role": "tool", "content": "x"}),
    ), f"{C}test_invalid_chat_message_is_rejected"),
    Row(136, "openai_utils", "NeMoGymChatCompletionUserMessageParam", (
        reads({"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "user"}),
    ), NOTHING_IN_PARTICULAR),
    Row(137, "openai_utils", "NeMoGymFunction", (fields("arguments! name!"),), NOTHING_IN_PARTICULAR),
    Row(138, "openai_utils", "NeMoGymFunctionToolParam", (
        reads({"type": "function", "function": {"name": "f", "parameters": {}}}, {"type": "function", "name": "f"}),
    ), NOTHING_IN_PARTICULAR),
    Row(139, "openai_utils", "NeMoGymResponseFunctionToolCallForTraining", (
        fields(f"arguments! call_id! name! type='function_call' id=None status=None {TOKENS}"),
        derived_from("NeMoGymResponseFunctionToolCall", "TokenIDLogProbMixin"),
    ), f"{C}test_tokens_round_trip"),
    Row(140, "openai_utils", "NeMoGymResponseInputText", (fields("text! type='input_text'"),),
        "test_item_type_is_sent_even_if_unset"),
    Row(141, "openai_utils", "REQUIRED_TOKEN_METADATA_FIELDS", (
        frozen({"prompt_token_ids", "generation_token_ids", "generation_log_probs"}),
    ), f"{C}test_token_fields_are_all_or_nothing"),
    Row(142, "openai_utils", "TOKEN_METADATA_FIELDS", (
        frozen({"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"}),
    ), f"{C}test_tokens_round_trip"),
    Row(146, "responses_converter", "VLLMConverterResponsesToChatCompletionsState", (
        signature("(return_token_id_information, uses_reasoning_parser=True)"),
    ), f"{P}test_responses_converter.py::test_state_buffers_the_assistant_turn_until_it_ends"),
    Row(147, "responses_converter", "_usage_detail", (is_callable,),
        f"{P}test_responses_converter.py::test_count_is_found_in_its_group_or_alias"),
]  # fmt: skip
