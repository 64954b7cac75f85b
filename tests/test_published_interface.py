"""Every name that published folders import: its shape, and the test that shows what it does."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, MagicMock, patch

import aiohttp
import fastapi
import omegaconf
import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import nemo_gym
from nemo_gym import (
    base_resources_server,
    base_responses_api_agent,
    base_responses_api_model,
    config_types,
    global_config,
    openai_utils,
    rollout_collection,
    server_utils,
)
from nemo_gym.errors import ConfigError, HeadServerNotFoundError, NoServerInstancesError, PortTakenError
from nemo_gym.global_config import DictConfig, GlobalConfigDictParser, GlobalConfigDictParserConfig, OmegaConf

ROOT = Path(__file__).parents[1]
APPENDIX = ROOT.parent / "shared" / "published_api.md"
Check = Callable[[Any], None]
NOTHING_IN_PARTICULAR = "shape"
"""Where the shape is all that there is to show: a constant, fields without a behaviour."""


class Row(NamedTuple):
    """A row of appendix A."""

    number: int
    module: str
    """Without its leading `nemo_gym.`; empty for the package itself."""
    name: str
    shape: tuple[Check, ...]
    shown_by: str
    """A test of this file, or `path::test` of another one."""

    @property
    def home(self) -> types.ModuleType:
        return importlib.import_module(f"nemo_gym.{self.module}" if self.module else "nemo_gym")

    @property
    def thing(self) -> Any:
        return self.home if self.name == "<module>" else getattr(self.home, self.name)


# Shapes


def value(expected: Any) -> Check:
    def check(thing: Any) -> None:
        assert thing == expected

    return check


def is_the(module: Any, name: str) -> Check:
    """It is not like that one: it is that one."""

    def check(thing: Any) -> None:
        assert thing is getattr(module, name)

    return check


def kind_of(*bases: type) -> Check:
    def check(thing: Any) -> None:
        assert inspect.isclass(thing)
        assert issubclass(thing, bases)

    return check


def derived_from(*names: str) -> Check:
    def check(thing: Any) -> None:
        above = {base.__name__ for base in thing.__mro__[1:]}
        assert {base.partition(":")[2] or base for base in names} <= {*above, *_published_names_of(above)}

    return check


def _published_names_of(names: set[str]) -> set[str]:
    modules = (openai_utils, base_resources_server, config_types, base_responses_api_agent, base_responses_api_model)
    return {alias for module in modules for alias, each in vars(module).items() if _named(each) in names}


def _named(thing: Any) -> str | None:
    return thing.__name__ if inspect.isclass(thing) else None


def fields(text: str) -> Check:
    """`a!` has to be given, `b=1` has this default; there may be more, with defaults of their own."""
    expected = {}
    for word in text.split():
        name, _, default = word.partition("=")
        expected[name.removesuffix("!")] = ... if name.endswith("!") else ast.literal_eval(default)

    def check(thing: Any) -> None:
        told = {
            name: ... if field.is_required() else field.get_default(call_default_factory=True)
            for name, field in thing.model_fields.items()
        }
        assert {name: told.get(name, "no such field") for name in expected} == expected
        assert [name for name in told if told[name] is ... and name not in expected] == []

    return check


def extra(mode: str | None) -> Check:
    """What becomes of fields that nobody knows; None is pydantic's own `ignore`."""

    def check(thing: Any) -> None:
        assert thing.model_config.get("extra") == mode

    return check


def signature(text: str, *, awaited: bool = False) -> Check:
    """Parameters with their defaults; those that come after the ones in `text` may be left out by every caller."""

    def check(thing: Any) -> None:
        assert inspect.iscoroutinefunction(thing) == awaited
        given = inspect.signature(thing)
        bare = given.replace(
            parameters=[each.replace(annotation=inspect.Parameter.empty) for each in given.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        told, expected = str(bare), text
        if told == expected:
            return
        begins = expected[:-1] + ("" if expected == "()" else ", ")
        assert told.startswith(begins), f"{told} is not {expected}"
        named = 0 if expected == "()" else expected.count(",") + 1 - expected.count("*, ")
        beyond = list(bare.parameters.values())[named:]
        optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        assert all(each.default is not inspect.Parameter.empty or each.kind in optional for each in beyond)

    return check


def methods(**signatures: str) -> Check:
    """Each as its class has it, `async ` before those that are awaited."""

    def check(thing: Any) -> None:
        for name, text in signatures.items():
            awaited = text.startswith("async ")
            signature(text.removeprefix("async "), awaited=awaited)(getattr(thing, name))

    return check


def members(**values: str) -> Check:
    def check(thing: Any) -> None:
        assert issubclass(thing, str)
        assert issubclass(thing, Enum)
        assert {name: thing[name].value for name in values} == values

    return check


def reads(good: Any, bad: Any) -> Check:
    """A type, whatever it is made of: it takes the one as it is, and refuses the other."""

    def check(thing: Any) -> None:
        adapter = TypeAdapter(thing)
        read = adapter.validate_python(good)
        assert adapter.dump_python(read, mode="json", exclude_unset=True) == good
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)

    return check


def is_folder(thing: Any) -> None:
    assert isinstance(thing, Path)
    assert thing.is_absolute()


def is_callable(thing: Any) -> None:
    assert callable(thing)


PROVIDER = ("exec", "create", "upload_file", "download_file", "status", "endpoint", "close", "aclose")


def provides(thing: Any) -> None:
    assert [name for name in PROVIDER if not inspect.iscoroutinefunction(getattr(thing, name, None))] == []


RUN_SERVER = "host! port! num_workers=None entrypoint! domain=None name!"
TOKENS = "prompt_token_ids! generation_token_ids! generation_log_probs! routed_experts=None"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT_ITEM = {"type": "message", "role": "user", "content": "hi"}
STRICT = extra("forbid")
TIMES = "started_at=None completed_at=None duration_ms=None"
RESPONSE_FIELDS = "id! created_at! model! output! incomplete_details=None usage=None error=None instructions=None"

C = "tests/schemas/test_openai_conformance.py::"
P = "tests/published_modules/"
S = "tests/sandbox/"
RECORDS = "tests/capture/"
STYLE = "tests/published_style/test_agents_and_models.py::"
NAMES = "tests/test_published_names.py::"
EXEC = "async (self, command, cwd=None, env=None, timeout_s=180.0, user=None)"

ROWS = [
    Row(1, "server_utils", "ServerClient", (
        fields("head_server_config! global_config_dict!"),
        methods(
            request="async (self, server_name, url_path, method, **kwargs)",
            get="async (self, server_name, url_path, **kwargs)",
            post="async (self, server_name, url_path, **kwargs)",
            load_head_server_config="()",
            load_from_global_config="(head_server_config=None)",
            poll_for_status="(self, server_name)",
            _build_server_base_url="(self, server_config_dict)",
        ),
    ), "test_a_client_may_be_a_mock_that_knows_nothing"),
    Row(2, "base_resources_server", "BaseVerifyResponse", (
        fields("responses_create_params! response! reward!"), extra(None), derived_from("BaseVerifyRequest"),
    ), "test_a_graded_row_needs_its_reward_and_keeps_extra_fields_only_where_allowed"),
    Row(3, "openai_utils", "NeMoGymResponse", (fields(RESPONSE_FIELDS), extra("allow")),
        f"{C}test_unknown_fields_of_a_response_survive_at_every_level"),
    Row(4, "base_resources_server", "BaseVerifyRequest", (
        fields("responses_create_params! response!"), extra(None), derived_from("BaseRunRequest"),
    ), "test_a_graded_row_needs_its_reward_and_keeps_extra_fields_only_where_allowed"),
    Row(5, "base_resources_server", "BaseResourcesServerConfig", (
        fields(f"{RUN_SERVER} expose_tools_over_mcp=False"), derived_from("BaseRunServerInstanceConfig"), extra(None),
    ), "test_the_reverify_mode_of_a_config_is_its_classes"),
    Row(6, "openai_utils", "NeMoGymResponseCreateParamsNonStreaming", (
        STRICT,
        fields(
            "background=None include=None input! instructions=None max_output_tokens=None max_tool_calls=None "
            "metadata=None model=None parallel_tool_calls=True previous_response_id=None prompt=None reasoning=None "
            "service_tier=None store=None temperature=None text=None tool_choice='auto' tools=[] top_logprobs=None "
            "top_p=None truncation=None user=None stream=None conversation=None context_management=None "
            "prompt_cache_key=None prompt_cache_retention=None safety_identifier=None stream_options=None"
        ),
    ), f"{C}test_unknown_fields_of_a_request_are_refused_here_and_ignored_there"),
    Row(7, "base_resources_server", "SimpleResourcesServer", (
        fields("config! server_client!"),
        derived_from("BaseResourcesServer", "AggregateMetricsMixin", "SimpleServer"),
        methods(
            verify="async (self, body)",
            seed_session="async (self, body)",
            aggregate_metrics="async (self, body)",
            compute_metrics="(self, tasks)",
            get_key_metrics="(self, agent_metrics)",
            mcp_tools="(self, harvested, catchall)",
            mcp_allowed_tools_for_session="(self, seed_body)",
            normalize_tool_name="(self, name)",
            setup_webserver="(self)",
        ),
    ), "test_each_tier_has_its_routes"),
    Row(8, "base_resources_server", "BaseRunRequest", (fields("responses_create_params!"), extra(None)),
        "test_a_graded_row_needs_its_reward_and_keeps_extra_fields_only_where_allowed"),
    Row(9, "config_types", "ModelServerRef", (
        fields("type! name!"), reads({"type": "responses_api_models", "name": "m"}, {"type": "models", "name": "m"}),
    ), NOTHING_IN_PARTICULAR),
    Row(10, "openai_utils", "NeMoGymEasyInputMessage", (
        fields("content! role! type='message'"), reads(TEXT_ITEM, {**TEXT_ITEM, "role": "tool"}),
    ), "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(11, "openai_utils", "NeMoGymResponseOutputMessage", (
        fields("id! content! role='assistant' status='completed' type='message'"),
    ), "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(12, "openai_utils", "NeMoGymResponseOutputText", (
        fields("annotations=[] text! type='output_text' logprobs=None"),
    ), "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(13, "base_responses_api_agent", "BaseResponsesAPIAgentConfig", (
        fields(f"{RUN_SERVER} skip_verification=False skip_verification_reward=0.0 token_id_capture=False"),
        derived_from("BaseRunServerInstanceConfig"),
    ), "tests/servers/test_agent.py::test_metrics_are_aggregated_unless_verification_is_skipped"),
    Row(14, "base_responses_api_agent", "SimpleResponsesAPIAgent", (
        fields("config! server_client!"),
        methods(
            url_path_for_run="(self, path, body)",
            url_path_for_request="(self, path, request)",
            rollout_id_from_run="(self, body)",
            resolve_model_base_url="(self, name, rollout_id=None)",
            base_url_for_run="(self, base_url, body)",
            aggregate_metrics="async (self, body)",
            _model_call_capture_enabled="(self)",
            _token_id_capture_enabled="(self)",
            _capture_correlation_enabled="(self)",
        ),
    ), "test_each_tier_has_its_routes"),
    Row(15, "server_utils", "raise_for_status", (signature("(response)", awaited=True),),
        "test_a_bad_answer_is_raised_with_its_body_and_a_good_one_is_left_alone"),
    Row(16, "server_utils", "get_response_json", (signature("(response)", awaited=True),),
        "test_an_answers_json_needs_nothing_but_read"),
    Row(17, "openai_utils", "NeMoGymResponseFunctionToolCall", (
        fields("arguments! call_id! name! type='function_call' id=None status=None"),
    ), "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(18, "config_types", "ResourcesServerRef", (
        fields("type! name!"), reads({"type": "resources_servers", "name": "m"}, {"type": "resources", "name": "m"}),
    ), NOTHING_IN_PARTICULAR),
    Row(19, "reward_profile", "compute_pass_majority_metrics",
        (signature("(tasks, score_fn=None, answer_key=None)"),), "test_four_values_tell_of_passes_and_majorities"),
    Row(20, "openai_utils", "NeMoGymFunctionCallOutput", (
        fields("call_id! output! type='function_call_output' id=None status=None"),
    ), "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(21, "reward_profile", "highest_k_metrics",
        (signature("(agent_metrics, pattern, score_names=None, exclude_names=None)"),),
        "tests/metrics/test_pass_at_k.py::test_the_entries_of_the_largest_k_are_picked"),
    Row(22, "base_responses_api_agent", "Body", (is_the(fastapi, "Body"),), NOTHING_IN_PARTICULAR),
    Row(23, "judge", "call_judge",
        (signature("(server_client, *, server_name, url_path, json, response_model)", awaited=True),),
        f"{P}test_judge.py::test_whatever_fails_is_the_judges_failure"),
    Row(24, "server_utils", "SESSION_ID_KEY", (value("session_id"),), NOTHING_IN_PARTICULAR),
    Row(25, "openai_utils", "NeMoGymResponseReasoningItem", (
        fields("id! summary! type='reasoning' encrypted_content=None content=None"),
    ), "test_a_status_of_reasoning_is_ignored"),
    Row(26, "judge", "JudgeError", (kind_of(Exception), signature("(message, *, server=None)")),
        f"{P}test_judge.py::test_a_failed_judge_leaves_a_row_that_says_so"),
    Row(27, "openai_utils", "NeMoGymSummary", (fields("text! type='summary_text'"),),
        "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(28, "base_resources_server", "BaseSeedSessionRequest", (fields(""), extra(None)), NOTHING_IN_PARTICULAR),
    Row(29, "openai_utils", "NeMoGymChatCompletionCreateParamsNonStreaming", (
        fields("messages! model=None tools=None temperature=None max_tokens=None top_p=None stream=None"),
        extra("ignore"),
    ), f"{C}test_unknown_fields_of_a_request_are_refused_here_and_ignored_there"),
    Row(30, "base_resources_server", "BaseSeedSessionResponse", (fields(""), extra(None)), NOTHING_IN_PARTICULAR),
    Row(31, "openai_utils", "NeMoGymResponseUsage", (
        fields("input_tokens=0 output_tokens=0 total_tokens=0"), methods(sum_from_list="(usages)"),
    ), "test_usages_are_added_up_whatever_is_unknown"),
    Row(32, "base_resources_server", "AggregateMetricsRequest", (
        fields("verify_responses!"), is_the(config_types, "AggregateMetricsRequest"),
    ), NOTHING_IN_PARTICULAR),
    Row(33, "global_config", "ROLLOUT_INDEX_KEY_NAME", (value("_ng_rollout_index"),), NOTHING_IN_PARTICULAR),
    Row(34, "openai_utils", "NeMoGymChatCompletion", (
        fields("id! choices! created! model! object='chat.completion' usage=None"), extra("allow"),
    ), f"{C}test_a_chat_completion_comes_back_as_it_was"),
    Row(35, "global_config", "TASK_INDEX_KEY_NAME", (value("_ng_task_index"),), NOTHING_IN_PARTICULAR),
    Row(36, "openai_utils", "NeMoGymResponseInputTokensDetails", (
        fields("cached_tokens=0"), reads({"cached_tokens": None}, {"cached_tokens": "some"}),
    ), "test_usages_are_added_up_whatever_is_unknown"),
    Row(37, "openai_utils", "NeMoGymResponseOutputTokensDetails", (
        fields("reasoning_tokens=0"), reads({"reasoning_tokens": None}, {"reasoning_tokens": "some"}),
    ), "test_usages_are_added_up_whatever_is_unknown"),
    Row(38, "reward_profile", "compute_subset_metrics",
        (signature("(tasks, subset_key, score_fn=None, answer_key=None)"),),
        "tests/metrics/test_pass_at_k.py::test_subsets_have_the_same_metrics_behind_their_name"),
    Row(39, "sandbox", "SandboxSpec", (
        signature("(image=None, ttl_s=None, ready_timeout_s=None, workdir=None, env=<factory>, files=<factory>, "
                  "metadata=<factory>, resources=<factory>, entrypoint=None, provider_options=<factory>)"),
    ), f"{S}test_sandbox.py::test_a_spec_takes_plain_mappings_and_keeps_copies"),
    Row(40, "openai_utils", "NeMoGymResponseOutputItem", (
        reads(TEXT_ITEM, {"role": "user", "content": "hi"}),
    ), f"{C}test_only_a_request_may_leave_out_the_type_of_a_message"),
    Row(41, "global_config", "get_first_server_config_dict", (signature("(global_config_dict, top_level_path)"),),
        "test_the_settings_of_an_instance_are_two_levels_down"),
    Row(42, "sandbox", "AsyncSandbox", (
        signature("(provider, spec=None)"),
        methods(start="async (self, spec=None)", exec=EXEC, stop="async (self)", status="async (self)",
                upload="async (self, source_path, target_path)", download="async (self, source_path, target_path)"),
    ), f"{S}test_sandbox.py::test_each_call_reaches_the_provider_by_position_and_by_name"),
    Row(43, "", "PARENT_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(44, "global_config", "get_global_config_dict", (
        signature("(global_config_dict_parser_config=None, "
                  f"global_config_dict_parser_cls={GlobalConfigDictParser!r})"),
    ), "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(45, "base_resources_server", "AggregateMetrics", (
        fields("group_level_metrics=[] agent_metrics={} key_metrics={}"), is_the(config_types, "AggregateMetrics"),
    ), NOTHING_IN_PARTICULAR),
    Row(46, "openai_utils", "accumulate_response_usage", (signature("(total, additional)"),),
        "test_usages_are_added_up_whatever_is_unknown"),
    Row(47, "rollout_observability", "AgentInvocation", (
        STRICT, fields(f"kind='agent_invocation' invocation_id! parent_invocation_id=None {TIMES} model_calls=[] "
                       "episodes=[] status=None error_type=None"),
    ), f"{RECORDS}test_observations.py::test_calls_belong_to_the_invocation_that_names_them"),
    Row(48, "rollout_observability", "ObservationGap", (STRICT, fields("code! invocation_id=None detail=None")),
        f"{RECORDS}test_observations.py::test_observations_that_cannot_be_read_are_a_gap"),
    Row(49, "sandbox", "SandboxResources", (
        signature("(cpu=None, memory_mib=None, disk_gib=None, gpu=None, gpu_type=None)"),
    ), f"{S}bubblewrap/test_confinement.py::test_memory_is_bounded"),
    Row(50, "prompt", "load_prompt_config", (signature("(path)"),),
        f"{P}test_prompt.py::test_a_prompt_is_found_by_its_path_from_the_root_or_by_the_whole_one"),
    Row(51, "base_resources_server", "ReverifyMode", (
        members(STATELESS="stateless", UNSUPPORTED="unsupported", UNKNOWN="unknown"),
    ), "tests/servers/test_resources.py::test_the_reverify_mode_is_the_configs"),
    Row(52, "config_types", "AggregateMetricsRequest", (
        fields("verify_responses!"), reads({"verify_responses": [{"reward": 1.0}]}, {"verify_responses": [1.0]}),
    ), NOTHING_IN_PARTICULAR),
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
    Row(54, "rollout_observability", "AgentObservationBundle", (STRICT, fields("source! records=[] gaps=[]")),
        f"{STYLE}test_what_an_agent_observes_is_kept_and_joined_with_its_calls"),
    Row(55, "rollout_observability", "ToolCallObservation", (
        STRICT, fields(f"kind='tool_call' invocation_id=None tool_call_id! sandbox_id=None tool_name=None {TIMES} "
                       "timing_source=None status=None error_type=None output=None"),
    ), f"{STYLE}test_what_an_agent_observes_is_kept_and_joined_with_its_calls"),
    Row(56, "server_utils", "request", (signature("(method, url, _internal=False, **kwargs)", awaited=True),),
        "tests/http/test_requests.py::test_json_goes_out_and_the_response_is_left_to_be_read"),
    Row(57, "base_responses_api_model", "Body", (is_the(fastapi, "Body"),), NOTHING_IN_PARTICULAR),
    Row(58, "openai_utils", "NeMoGymResponseOutputRefusal", (fields("refusal! type='refusal'"),),
        "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(59, "prompt", "PromptConfig", (fields("user! system=None"),),
        f"{P}test_prompt.py::test_the_system_message_may_be_left_out"),
    Row(60, "rollout_observability", "AgentEpisode", (STRICT, fields("episode_id! model_calls=[]")),
        f"{STYLE}test_what_an_agent_observes_is_kept_and_joined_with_its_calls"),
    Row(61, "rollout_observability", "ContextCompactionObservation", (
        STRICT, fields("kind='context_compaction' invocation_id=None"),
    ), f"{RECORDS}test_observations.py::test_a_bundle_tells_its_records_apart_by_their_kind"),
    Row(62, "rollout_observability", "ModelCallRef", (STRICT, fields("model_call_id=None response_id=None")),
        f"{RECORDS}test_observations.py::test_calls_belong_to_the_invocation_that_names_them"),
    Row(63, "sandbox", "resolve_provider_config", (signature("(sandbox_provider, global_config=None)"),),
        f"{S}test_config.py::test_a_named_block_a_provider_and_a_block_itself_are_found"),
    Row(64, "sandbox", "resolve_provider_metadata", (signature("(sandbox_provider, global_config=None)"),),
        f"{S}test_config.py::test_a_named_block_a_provider_and_a_block_itself_are_found"),
    Row(65, "server_utils", "get_first_server_config_dict", (is_the(global_config, "get_first_server_config_dict"),),
        "test_the_settings_of_an_instance_are_two_levels_down"),
    Row(66, "server_utils", "is_nemo_gym_fastapi_entrypoint", (signature("(file)"),),
        "test_an_imported_file_is_not_the_entrypoint"),
    Row(67, "base_resources_server", "NeMoGymResponse", (is_the(openai_utils, "NeMoGymResponse"),),
        NOTHING_IN_PARTICULAR),
    Row(68, "base_responses_api_model", "BaseResponsesAPIModelConfig", (
        fields(RUN_SERVER), derived_from("BaseRunServerInstanceConfig"),
    ), NOTHING_IN_PARTICULAR),
    Row(69, "base_responses_api_model", "SimpleResponsesAPIModel", (fields("config! server_client!"),),
        "test_each_tier_has_its_routes"),
    Row(70, "config_types", "AggregateMetrics", (
        fields("group_level_metrics=[] agent_metrics={} key_metrics={}"),
    ), NOTHING_IN_PARTICULAR),
    Row(71, "openai_utils", "NeMoGymChatCompletionMessage", (
        fields("role='assistant' content=None refusal=None tool_calls=None"), extra("allow"),
    ), f"{C}test_a_chat_completion_comes_back_as_it_was"),
    Row(72, "openai_utils", "NeMoGymChoice", (fields("finish_reason! index! message! logprobs=None"),),
        f"{C}test_a_chat_completion_comes_back_as_it_was"),
    Row(73, "openai_utils", "NeMoGymResponseOutputMessageForTraining", (
        fields(f"id! content! role='assistant' status='completed' type='message' {TOKENS}"),
        derived_from("NeMoGymResponseOutputMessage", "TokenIDLogProbMixin"),
    ), f"{C}test_tokens_come_all_together_or_not_at_all"),
    Row(74, "responses_converter", "ResponsesConverter", (
        signature("(return_token_id_information, uses_reasoning_parser=True)"),
        methods(
            responses_to_chat_completion_create_params="(self, responses_create_params)",
            chat_completion_to_responses_create_params="(self, chat_completion_create_params)",
            chat_completion_to_response="(self, chat_completion, responses_create_params)",
        ),
    ), f"{P}test_responses_converter.py::test_ids_come_from_the_uuid4_that_a_test_patches"),
    Row(75, "rollout_collection", "NG_FAILURE_CLASS_KEY", (value("_ng_failure_class"),),
        f"{STYLE}test_sentinels_decide_in_which_file_a_rollout_is_kept"),
    Row(76, "rollout_collection", "NG_NO_PERSIST_KEY", (value("_ng_no_persist"),),
        f"{STYLE}test_sentinels_decide_in_which_file_a_rollout_is_kept"),
    Row(77, "sandbox.config", "resolve_provider_config", (signature("(sandbox_provider, global_config=None)"),),
        f"{S}test_config.py::test_the_published_paths_lead_to_the_same"),
    Row(78, "sandbox.config", "resolve_provider_metadata", (signature("(sandbox_provider, global_config=None)"),),
        f"{S}test_config.py::test_the_published_paths_lead_to_the_same"),
    Row(79, "server_utils", "get_server_url", (signature("(server_name)"),),
        "test_what_is_patched_in_a_module_is_looked_up_there"),
    Row(80, "prompt", "fill_prompt", (signature("(cfg, row)"),),
        f"{P}test_prompt.py::test_a_field_that_the_row_lacks_is_told_with_those_that_it_has"),
    Row(81, "base_responses_api_model", "CaptureStore", (
        signature("(root)"),
        methods(
            path_for="(self, rollout_id)", incomplete_path_for="(self, rollout_id)",
            mark_incomplete="(self, rollout_id)", is_incomplete="(self, rollout_id)",
            record="(self, rollout_id, record)", read="(self, rollout_id)", read_available="(self, rollout_id)",
        ),
    ), f"{RECORDS}test_store.py::test_what_is_recorded_is_read_back"),
    Row(82, "global_config", "SKILLS_REF_KEY_NAME", (value("skills_ref"),),
        f"{P}test_skills.py::test_a_folder_is_what_a_row_is_stamped_with"),
    Row(83, "judge", "reraise_judge_errors", (signature("(awaitable)", awaited=True),),
        f"{P}test_judge.py::test_what_an_own_way_of_asking_raises_becomes_the_judges_failure"),
    Row(84, "openai_utils", "NeMoGymResponseInput", (reads([TEXT_ITEM], "hi"),), NOTHING_IN_PARTICULAR),
    Row(85, "rollout_collection", "NG_TERMINAL_KEY", (value("_ng_failure_terminal"),),
        f"{STYLE}test_sentinels_decide_in_which_file_a_rollout_is_kept"),
    Row(86, "sandbox", "SandboxExecResult", (signature("(stdout=None, stderr=None, return_code=0, error_type=None)"),),
        f"{S}bubblewrap/test_commands.py::test_what_cannot_be_run_and_what_is_killed_ends_as_in_a_shell"),
    Row(87, "sandbox", "SandboxStatus", (members(RUNNING="running", STOPPED="stopped", ERROR="error"),),
        f"{S}test_sandbox.py::test_it_starts_once_stops_once_and_can_start_again"),
    Row(88, "base_resources_server", "NEMO_GYM_MCP_METADATA_KEY", (value("mcp"),),
        "tests/servers/test_mcp.py::test_a_seed_tells_where_the_tools_are"),
    Row(89, "base_responses_api_model", "read_model_call_records", (signature("(store, rollout_id)"),),
        f"{RECORDS}test_store.py::test_calls_are_read_in_the_order_they_began"),
    Row(90, "openai_utils", "NeMoGymMessage", (fields("content! role! status=None type='message'"),),
        "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(91, "openai_utils", "NeMoGymResponseInputItem", (
        reads(TEXT_ITEM, {"role": "user"}),
    ), f"{C}test_only_a_request_may_leave_out_the_type_of_a_message"),
    Row(92, "openai_utils", "RATE_LIMIT_ERROR_CODES", (value([429, 502, 503, 504, 520]),), NOTHING_IN_PARTICULAR),
    Row(93, "openai_utils", "RETRY_ERROR_CODES", (value([429, 502, 503, 504, 520, 500]),), NOTHING_IN_PARTICULAR),
    Row(94, "responses_converter", "VLLMConverter", (
        is_the(importlib.import_module("nemo_gym.responses_converter"), "ResponsesConverter"),
    ), f"{P}test_responses_converter.py::test_both_names_are_one_class_made_by_name_and_by_place"),
    Row(95, "responses_converter", "split_responses_input_output_items", (signature("(items)"),),
        f"{P}test_responses_converter.py::test_what_was_given_is_split_from_what_the_assistant_did"),
    Row(96, "rollout_collection", "RolloutCollectionHelper", (
        signature("()"),
        methods(
            run_examples="(self, examples, head_server_config=None, semaphore=None)",
            run_from_config="async (self, config)",
            setup_server_client="(self, head_server_config=None)",
        ),
    ), "tests/frameworks/test_training_loop.py::test_a_framework_starts_servers_and_trains_on_their_rollouts"),
    Row(97, "sandbox", "Sandbox", (
        signature("(provider, spec=None)"), methods(exec=EXEC.removeprefix("async "), stop="(self)"),
    ), f"{S}test_sandbox.py::test_the_sync_twin_works_where_no_loop_runs"),
    Row(98, "sandbox", "SandboxCreateError", (kind_of(Exception),),
        f"{S}bubblewrap/test_lives.py::test_a_sandbox_that_cannot_be_is_refused_with_its_reason"),
    Row(99, "sandbox", "SandboxHandle", (signature("(sandbox_id)"),),
        f"{S}test_sandbox.py::test_each_call_reaches_the_provider_by_position_and_by_name"),
    Row(100, "sandbox", "register_provider", (signature("(name, provider)"),),
        f"{S}test_config.py::test_a_provider_of_ones_own_is_registered_or_named_by_its_place"),
    Row(101, "server_utils", "apply_rollout_prefix", (signature("(base_url, rollout_id, *, token_capture=False)"),),
        f"{NAMES}test_a_prefix_lets_calls_count_for_a_rollout"),
    Row(102, "skills", "stage_skills", (signature("(path, dest)"),),
        f"{P}test_skills.py::test_an_agent_gets_a_copy_of_its_own"),
    Row(103, "global_config", "get_hf_token", (signature("()"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(104, "", "CACHE_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(105, "", "RESULTS_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(106, "base_resources_server", "BaseMultiRewardVerifyResponse", (
        fields("responses_create_params! response! reward! reward_components!"), derived_from("BaseVerifyResponse"),
    ), "test_a_graded_row_needs_its_reward_and_keeps_extra_fields_only_where_allowed"),
    Row(107, "base_responses_api_agent", "<module>", (value(base_responses_api_agent),),
        f"{RECORDS}test_paths.py::test_the_look_up_of_a_model_server_can_be_replaced_where_it_is_published"),
    Row(108, "base_responses_api_agent", "AggregateMetricsRequest", (
        is_the(config_types, "AggregateMetricsRequest"),
    ), NOTHING_IN_PARTICULAR),
    Row(109, "base_responses_api_model", "ModelCallRecord", (
        fields("dialect! model_ref=None started_at! completed_at=None latency_ms=None latency_ttft_ms=None "
               "status_code=None error_category=None request=None response=None request_raw=None response_raw=None"),
    ), f"{RECORDS}test_middleware.py::test_a_call_is_recorded_with_what_was_asked_and_answered"),
    Row(110, "base_responses_api_model", "_CaptureMiddleware", (signature("(app, store, model_ref=None)"),),
        f"{RECORDS}test_middleware.py::test_only_model_calls_that_name_their_rollout_are_recorded"),
    Row(111, "base_responses_api_model", "aggregate_model_call_metrics", (signature("(store, rollout_id)"),),
        f"{RECORDS}test_store.py::test_nothing_captured_is_all_zero"),
    Row(112, "base_responses_api_model", "merge_model_call_capture_into_record", (
        signature("(record, dirs, *, include_payloads=False)"),
    ), f"{RECORDS}test_store.py::test_a_record_is_given_the_calls_of_its_rollout"),
    Row(113, "config_types", "BaseServerConfig", (fields("host! port! num_workers=None"),), NOTHING_IN_PARTICULAR),
    Row(114, "config_types", "OmegaConf", (is_the(omegaconf, "OmegaConf"),), NOTHING_IN_PARTICULAR),
    Row(115, "global_config", "AGENT_REF_KEY_NAME", (value("agent_ref"),), NOTHING_IN_PARTICULAR),
    Row(116, "global_config", "ATTEMPT_INDEX_KEY_NAME", (value("_ng_attempt_index"),),
        f"{STYLE}test_sentinels_decide_in_which_file_a_rollout_is_kept"),
    Row(117, "global_config", "CACHE_DIR_KEY_NAME", (value("cache_dir"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(118, "global_config", "DISALLOWED_PORTS_KEY_NAME", (value("disallowed_ports"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(119, "global_config", "DictConfig", (is_the(omegaconf, "DictConfig"),), NOTHING_IN_PARTICULAR),
    Row(120, "global_config", "OmegaConf", (is_the(omegaconf, "OmegaConf"),), NOTHING_IN_PARTICULAR),
    Row(121, "global_config", "RESULTS_DIR_KEY_NAME", (value("results_dir"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(122, "global_config", "find_open_port", (signature("(disallowed_ports=None, max_retries=50)"),),
        "test_an_open_port_is_none_of_the_disallowed"),
    Row(123, "global_config", "maybe_get_global_config_dict", (signature("()"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(124, "judge", "judge_failsafe", (signature("(verify_fn)"),),
        f"{P}test_judge.py::test_a_failed_judge_leaves_a_row_that_says_so"),
    Row(125, "mcp_auto_exposure", "maybe_auto_expose", (signature("(server, app)"),),
        "tests/servers/test_mcp.py::test_typed_routes_of_the_published_style_are_tools"),
    Row(126, "openai_utils", "NeMoGymChatCompletionAssistantMessageForTrainingParam", (
        reads({"role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_token_ids": [2],
               "generation_log_probs": [-0.5]}, {"role": "assistant", "prompt_token_ids": [1]}),
    ), f"{C}test_tokens_come_all_together_or_not_at_all"),
    Row(127, "openai_utils", "NeMoGymChatCompletionAssistantMessageParam", (
        reads({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"content": "x"}),
    ), NOTHING_IN_PARTICULAR),
    Row(128, "openai_utils", "NeMoGymChatCompletionContentPartTextParam", (
        reads({"type": "text", "text": "x"}, {"type": "text"}),
    ), NOTHING_IN_PARTICULAR),
    Row(129, "openai_utils", "NeMoGymChatCompletionMessageForTraining", (
        fields(f"role='assistant' content=None refusal=None tool_calls=None {TOKENS}"),
        derived_from("NeMoGymChatCompletionMessage"),
    ), f"{C}test_tokens_come_back"),
    Row(130, "openai_utils", "NeMoGymChatCompletionMessageParam", (
        reads({"role": "developer", "content": "x"}, {"role": "stranger", "content": "x"}),
    ), f"{C}test_chat_messages_have_a_role_and_a_tools_answer_its_call"),
    Row(131, "openai_utils", "NeMoGymChatCompletionMessageToolCall", (fields("id! function! type='function'"),),
        "test_an_items_type_is_sent_even_where_nobody_set_it"),
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
    ), f"{C}test_chat_messages_have_a_role_and_a_tools_answer_its_call"),
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
    ), f"{C}test_tokens_come_back"),
    Row(140, "openai_utils", "NeMoGymResponseInputText", (fields("text! type='input_text'"),),
        "test_an_items_type_is_sent_even_where_nobody_set_it"),
    Row(141, "openai_utils", "REQUIRED_TOKEN_METADATA_FIELDS", (
        value(("prompt_token_ids", "generation_token_ids", "generation_log_probs")),
    ), f"{C}test_tokens_come_all_together_or_not_at_all"),
    Row(142, "openai_utils", "TOKEN_METADATA_FIELDS", (
        value(("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")),
    ), f"{C}test_tokens_come_back"),
    Row(143, "path_utils", "failures_path_for", (signature("(path)"),),
        f"{P}test_path_utils.py::test_failures_stand_beside_the_results"),
    Row(144, "profiling", "Profiler", (signature("(name, base_profile_dir)"),),
        f"{P}test_profiling.py::test_a_program_measures_itself_between_start_and_stop"),
    Row(145, "prompt", "apply_prompt_to_row", (signature("(row, cfg)"),),
        f"{P}test_prompt.py::test_a_row_keeps_everything_beside_its_input"),
    Row(146, "responses_converter", "VLLMConverterResponsesToChatCompletionsState", (
        signature("(return_token_id_information, uses_reasoning_parser=True)"),
    ), f"{P}test_responses_converter.py::test_the_state_holds_the_assistants_turn_back_until_it_ends"),
    Row(147, "responses_converter", "_usage_detail", (is_callable,),
        f"{P}test_responses_converter.py::test_a_count_is_found_in_its_group_or_is_nought"),
    Row(148, "reward_profile", "add_avg_sample_std_dev", (
        signature("(metrics, all_score_dicts, score_names, max_k)"),
    ), "tests/metrics/test_pass_at_k.py::test_the_average_sample_deviation_is_added_on_request"),
    Row(149, "rollout_collection", "<module>", (value(rollout_collection),),
        "test_what_is_patched_in_a_module_is_looked_up_there"),
    Row(150, "rollout_collection", "RolloutCollectionConfig", (
        fields("input_jsonl_fpath! output_jsonl_fpath! agent_name=None limit=None num_repeats_add_seed=False "
               "resume_from_cache=False prompt_config=None skills=None responses_create_params={} "
               "disable_aggregation=False"),
    ), "test_a_collection_may_be_told_by_all_of_its_published_keys"),
    Row(151, "rollout_collection", "_attach_trajectory_record", (is_callable,),
        f"{RECORDS}test_observations.py::test_a_trajectory_that_the_agent_tells_stays"),
    Row(152, "rollout_collection", "_get_max_rollout_attempts", (signature("()"),),
        "test_how_often_a_rollout_is_tried_is_the_environments_word"),
    Row(153, "rollout_correlation", "RolloutContextMiddleware", (signature("(app)"),),
        "tests/servers/test_agent.py::test_the_prefix_is_stripped_where_it_is_one"),
    Row(154, "rollout_observability", "TrajectoryRecord", (
        STRICT, fields("schema_version='1.0' task_id=None rollout_id=None invocations=[] turns=[] model_calls=[] "
                       "tool_calls=[] gaps=[]"),
    ), f"{RECORDS}test_collection.py::test_each_result_has_its_trajectory"),
    Row(155, "rollout_observability", "TrajectoryToolCall", (
        STRICT, fields(f"invocation_id=None tool_call_id! sandbox_id=None tool_name=None {TIMES} timing_source=None "
                       "status=None error_type=None output=None"),
    ), f"{RECORDS}test_observations.py::test_what_the_agent_observed_goes_before_what_the_response_shows"),
    Row(156, "rollout_observability", "TrajectoryTurn", (
        STRICT, fields("invocation_id=None task_id=None rollout_id=None turn_no! timestamp=None question=None "
                       "answer=None reasoning_content=None resolved=None step_count=None model_calls=[]"),
        reads({"turn_no": 1}, {"turn_no": 0}),
    ), f"{RECORDS}test_observations.py::test_a_trajectory_without_observations_is_told_from_the_response"),
    Row(157, "sandbox", "SandboxEndpoint", (signature("(url, headers=<factory>)"),),
        f"{S}test_command_lines.py::test_the_state_and_the_address_of_a_container_are_told"),
    Row(158, "sandbox", "create_provider", (signature("(config)"),),
        f"{S}test_config.py::test_options_that_are_unknown_or_wrong_are_named"),
    Row(159, "sandbox", "get_provider_class", (signature("(name)"),),
        f"{S}test_config.py::test_built_in_providers_are_found_by_name"),
    Row(160, "sandbox", "list_providers", (signature("()"),),
        f"{S}test_config.py::test_built_in_providers_are_found_by_name"),
    Row(161, "sandbox", "rewrite_image", (signature("(image, rewrites=None)"),),
        f"{S}test_config.py::test_the_first_beginning_that_an_image_has_is_rewritten"),
    Row(162, "sandbox.providers.apptainer", "ApptainerProvider", (provides,),
        f"{S}test_command_lines.py::test_an_instance_is_made_used_and_stopped"),
    Row(163, "sandbox.providers.apptainer", "provider", (
        lambda thing: value("nemo_gym.sandbox.providers.apptainer.provider")(thing.__name__),
    ), NOTHING_IN_PARTICULAR),
    Row(164, "sandbox.providers.base", "SandboxCreateError", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "SandboxCreateError"),
    ), f"{S}test_sandbox.py::test_the_create_error_has_its_published_place"),
    Row(165, "sandbox.providers.base", "SandboxExecResult", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "SandboxExecResult"),
    ), NOTHING_IN_PARTICULAR),
    Row(166, "sandbox.providers.docker", "DockerCreateConfig", (STRICT,),
        f"{S}test_command_lines.py::test_a_container_is_made_as_the_spec_and_the_options_say_and_removed"),
    Row(167, "sandbox.providers.docker", "DockerProvider", (provides,),
        f"{S}test_command_lines.py::test_commands_run_in_the_container_and_files_go_in_and_out"),
    Row(168, "sandbox.utils", "rewrite_image", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "rewrite_image"),
    ), NOTHING_IN_PARTICULAR),
    Row(169, "server_utils", "<module>", (value(server_utils),),
        "test_what_is_patched_in_a_module_is_looked_up_there"),
    Row(170, "server_utils", "get_global_aiohttp_client", (signature("()"),),
        f"{STYLE}test_an_agent_may_call_by_address_whatever_proxy_is_set"),
    Row(171, "server_utils", "is_global_aiohttp_client_request_debug_enabled", (signature("()"),),
        f"{STYLE}test_an_agent_may_call_by_address_whatever_proxy_is_set"),
    Row(172, "server_utils", "rollout_path_prefix", (signature("(rollout_id, *, token_capture=False)"),),
        f"{NAMES}test_a_prefix_lets_calls_count_for_a_rollout"),
    Row(173, "global_config", "HF_TOKEN_KEY_NAME", (value("hf_token"),),
        "test_a_process_reads_its_configuration_once_and_only_when_asked"),
    Row(174, "global_config", "GlobalConfigDictParser", (
        methods(
            parse="(self, global_config_dict_parser_config=None)",
            parse_no_environment="(self, initial_global_config_dict=None)",
            filter_for_server_instance_configs="(self, global_config_dict)",
            collect_missing_value_paths="(self, global_config_dict)",
            detect_and_report_almost_servers="(self, global_config_dict)",
            raise_on_no_server_instances="(self, global_config_dict)",
        ),
    ), "test_a_parser_tells_of_servers_and_of_what_is_missing"),
    Row(175, "benchmarks", "BenchmarkConfig", (kind_of(BaseModel),),
        f"{P}test_benchmarks.py::test_a_benchmark_is_what_its_configuration_says"),
    Row(176, "global_config", "GlobalConfigDictParserConfig", (
        fields("dotenv_path=None initial_global_config_dict=None skip_load_from_cli=False "
               "skip_load_from_dotenv=False hide_secrets=False offline=False"),
    ), "test_a_parser_tells_of_servers_and_of_what_is_missing"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}-{row.name}" for row in ROWS])
def test_a_name_has_its_published_shape(row):
    for check in row.shape:
        check(row.thing)


@cache
def functions_of(file: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, functions)}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}-{row.name}" for row in ROWS])
def test_what_a_name_does_is_shown_by_a_test(row):
    if row.shown_by == NOTHING_IN_PARTICULAR:
        assert row.shape
        return
    path, _, test = row.shown_by.rpartition("::")
    assert test in functions_of(ROOT / path if path else Path(__file__))


def test_every_row_of_the_appendix_is_here():
    if not APPENDIX.is_file():
        pytest.skip(f"{APPENDIX} is not here")
    _, _, appendix = APPENDIX.read_text("utf-8").partition("## Appendix A")
    told = re.findall(r"^\| (\d+) \| `([\w.]+)` \| `([^`]+)` \|", appendix, re.MULTILINE)
    assert [(int(number), module, name) for number, module, name in told] == [
        (row.number, f".{row.module}" if row.module else "nemo_gym", row.name) for row in ROWS
    ]


# Behaviour that no other test shows


ADDRESS: dict[str, Any] = {"host": "0.0.0.0", "port": 8080, "entrypoint": "", "name": ""}
RESPONSE = {
    "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [],
}  # fmt: skip


class Agent(base_responses_api_agent.SimpleResponsesAPIAgent):
    config: base_responses_api_agent.BaseResponsesAPIAgentConfig

    async def responses(self, body: openai_utils.NeMoGymResponseCreateParamsNonStreaming):
        answer = await self.server_client.post(server_name="m", url_path=self.url_path_for_run("/v1/responses", body))
        return await server_utils.get_response_json(answer)

    async def run(self, body: base_resources_server.BaseRunRequest):
        return {}


class Environment(base_resources_server.SimpleResourcesServer):
    config: base_resources_server.BaseResourcesServerConfig

    async def verify(self, body: base_resources_server.BaseVerifyRequest) -> base_resources_server.BaseVerifyResponse:
        return base_resources_server.BaseVerifyResponse(**body.model_dump(), reward=1.0)


class Model(base_responses_api_model.SimpleResponsesAPIModel):
    config: base_responses_api_model.BaseResponsesAPIModelConfig

    async def responses(self, body: openai_utils.NeMoGymResponseCreateParamsNonStreaming):
        return RESPONSE

    async def chat_completions(self, body: openai_utils.NeMoGymChatCompletionCreateParamsNonStreaming):
        return {}


def made(kind: type, config: type) -> Any:
    return kind(config=config(**ADDRESS), server_client=MagicMock(spec=server_utils.ServerClient))


@pytest.mark.parametrize("knows", ["nothing", "a mock", "no server"])
def test_a_client_may_be_a_mock_that_knows_nothing(knows):
    agent = made(Agent, base_responses_api_agent.BaseResponsesAPIAgentConfig)
    assert all(isinstance(getattr(agent.server_client, name), AsyncMock) for name in ("get", "post", "request"))
    if knows == "nothing":
        with pytest.raises(AttributeError):
            _ = agent.server_client.global_config_dict
    else:
        agent.server_client.global_config_dict = MagicMock() if knows == "a mock" else DictConfig({})
    agent.server_client.post.return_value.read = AsyncMock(return_value=orjson.dumps(RESPONSE))
    answer = TestClient(agent.setup_webserver()).post("/v1/responses", json={"input": "hi"})
    assert answer.json()["id"] == "r"
    assert agent.server_client.post.await_args.kwargs == {"server_name": "m", "url_path": "/v1/responses"}
    model = Model(
        config=base_responses_api_model.BaseResponsesAPIModelConfig(**ADDRESS), server_client=agent.server_client
    )
    assert TestClient(model.setup_webserver()).post("/v1/responses", json={"input": "hi"}).status_code == 200


@pytest.mark.parametrize(
    ("kind", "config", "routes"),
    [
        (
            Environment,
            base_resources_server.BaseResourcesServerConfig,
            {"POST /seed_session", "POST /verify", "POST /aggregate_metrics", "GET /reverify_mode",
             "POST /close_session"},
        ),
        (
            Agent,
            base_responses_api_agent.BaseResponsesAPIAgentConfig,
            {"POST /v1/responses", "POST /run", "POST /aggregate_metrics"},
        ),
        (
            Model,
            base_responses_api_model.BaseResponsesAPIModelConfig,
            {"POST /v1/responses", "POST /v1/chat/completions", "POST /v1/messages"},
        ),
    ],
)  # fmt: skip
def test_each_tier_has_its_routes(kind, config, routes):
    app = made(kind, config).setup_webserver()
    told = {f"{method} {route.path}" for route in app.routes for method in route.methods or ()}
    assert routes <= told
    client = TestClient(app)
    for prefix in ("/ng-rollout/3-1", "/ng-rollout/3-1/training-token-capture"):
        for route in routes:
            method, _, path = route.partition(" ")
            # Refused for its body at most: the route is there.
            assert client.request(method, f"{prefix}{path}").status_code in {200, 400, 422}


class Open(base_resources_server.BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


def test_a_graded_row_needs_its_reward_and_keeps_extra_fields_only_where_allowed():
    row = {"responses_create_params": {"input": "hi"}, "response": RESPONSE, "spam": 1}
    assert "spam" not in base_resources_server.BaseRunRequest.model_validate(row).model_dump()
    assert "spam" not in base_resources_server.BaseVerifyRequest.model_validate(row).model_dump()
    with pytest.raises(ValidationError, match="reward"):
        base_resources_server.BaseVerifyResponse.model_validate(row)
    graded = Open.model_validate({**row, "reward": 0.5})
    assert (graded.reward, graded.model_dump()["spam"]) == (0.5, 1)
    orjson.dumps(graded.model_dump())
    with pytest.raises(ValidationError, match="reward_components"):
        base_resources_server.BaseMultiRewardVerifyResponse.model_validate({**row, "reward": 0.5})
    several = {**row, "reward": 0.5, "reward_components": {"form": 1, "content": 0.0}}
    told = base_resources_server.BaseMultiRewardVerifyResponse.model_validate(several)
    assert told.reward_components == {"form": 1.0, "content": 0.0}


def test_the_reverify_mode_of_a_config_is_its_classes():
    class Stateless(base_resources_server.BaseResourcesServerConfig):
        REVERIFY_MODE = base_resources_server.ReverifyMode.STATELESS

    assert Stateless(**ADDRESS).REVERIFY_MODE == "stateless"
    assert base_resources_server.BaseResourcesServerConfig(**ADDRESS).REVERIFY_MODE == "unknown"
    assert "REVERIFY_MODE" not in Stateless(**ADDRESS).model_dump()


async def test_a_bad_answer_is_raised_with_its_body_and_a_good_one_is_left_alone():
    bad = MagicMock(ok=False)
    bad.content.read = AsyncMock(return_value=b"no such luck")
    bad.raise_for_status.side_effect = aiohttp.ClientResponseError(MagicMock(), (), status=503)
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await server_utils.raise_for_status(bad)
    assert (raised.value.status, raised.value.response_content) == (503, b"no such luck")
    await server_utils.raise_for_status(MagicMock(spec=["ok"], ok=True))


async def test_an_answers_json_needs_nothing_but_read():
    answer = MagicMock(spec=["read"], read=AsyncMock(return_value=b'{"a": [1, null]}'))
    assert await server_utils.get_response_json(answer) == {"a": [1, None]}


TAGGED = {
    openai_utils.NeMoGymEasyInputMessage: {"content": "hi", "role": "user"},
    openai_utils.NeMoGymMessage: {"content": [{"text": "hi", "type": "input_text"}], "role": "user"},
    openai_utils.NeMoGymResponseOutputMessage: {"id": "m", "content": []},
    openai_utils.NeMoGymResponseOutputText: {"annotations": [], "text": "hi"},
    openai_utils.NeMoGymResponseOutputRefusal: {"refusal": "no"},
    openai_utils.NeMoGymResponseInputText: {"text": "hi"},
    openai_utils.NeMoGymSummary: {"text": "hm"},
    openai_utils.NeMoGymResponseReasoningItem: {"id": "rs", "summary": []},
    openai_utils.NeMoGymResponseFunctionToolCall: {"arguments": "{}", "call_id": "c", "name": "f"},
    openai_utils.NeMoGymFunctionCallOutput: {"call_id": "c", "output": "done"},
    openai_utils.NeMoGymChatCompletionMessageToolCall: {"id": "c", "function": {"name": "f", "arguments": "{}"}},
}


@pytest.mark.parametrize("kind", TAGGED, ids=lambda kind: kind.__name__)
def test_an_items_type_is_sent_even_where_nobody_set_it(kind):
    item = kind(**TAGGED[kind])
    sent = item.model_dump(exclude_unset=True)
    assert sent["type"] == kind.model_fields["type"].default
    assert TAGGED[kind].items() <= sent.items()
    # Read back it is the same, and what nobody knows is kept.
    assert kind.model_validate({**sent, "something_new": 1}).model_dump()["something_new"] == 1
    assert kind.model_validate(sent) == item
    with pytest.raises(ValidationError):
        kind.model_validate({**sent, "type": "something_else"})


def test_the_settings_that_a_response_repeats_are_read_by_attribute():
    sent = {
        "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "reasoning": {"effort": "low", "new": {"a": 1}},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
    }  # fmt: skip
    response = openai_utils.NeMoGymResponse.model_validate(sent)
    assert (response.reasoning.effort, response.text.verbosity) == ("low", "low")
    assert response.model_dump(exclude_unset=True) == sent
    assert openai_utils.NeMoGymResponse.model_validate_json(response.model_dump_json()).reasoning == response.reasoning


def test_a_response_takes_parts_that_the_openai_package_has_made():
    responses = pytest.importorskip("openai.types.responses")
    response = openai_utils.NeMoGymResponse(
        **{
            **RESPONSE,
            "tools": [responses.FunctionTool(name="add", type="function", parameters={}, strict=True)],
            "incomplete_details": responses.response.IncompleteDetails(reason="max_output_tokens"),
            "error": responses.ResponseError(code="server_error", message="gone"),
        }
    )
    assert (response.tools[0].name, response.error.message) == ("add", "gone")
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_status_of_reasoning_is_ignored():
    item = openai_utils.NeMoGymResponseReasoningItem(id="rs", summary=[], status="completed")
    assert "status" not in item.model_dump()
    response = openai_utils.NeMoGymResponse.model_validate(
        {**RESPONSE, "output": [{"type": "reasoning", "id": "rs", "summary": [], "status": None}]}
    )
    assert "status" not in response.model_dump()["output"][0]


def usage_of(tokens: int, cached: int | None) -> openai_utils.NeMoGymResponseUsage:
    return openai_utils.NeMoGymResponseUsage(
        input_tokens=tokens,
        input_tokens_details=openai_utils.NeMoGymResponseInputTokensDetails(cached_tokens=cached),
        output_tokens=1,
        output_tokens_details=openai_utils.NeMoGymResponseOutputTokensDetails(reasoning_tokens=None),
        total_tokens=tokens + 1,
    )


def test_usages_are_added_up_whatever_is_unknown():
    add = openai_utils.accumulate_response_usage
    first, second = usage_of(10, 4), usage_of(20, None)
    assert add(None, None) is None
    assert add(first, None) == first
    assert add(None, second) == second
    both = add(first, second)
    assert (both.input_tokens, both.output_tokens, both.total_tokens) == (30, 2, 32)
    assert (both.input_tokens_details.cached_tokens, both.output_tokens_details.reasoning_tokens) == (4, None)
    assert first.input_tokens == 10
    assert openai_utils.NeMoGymResponseUsage.sum_from_list([first, second, first]).total_tokens == 43


def test_four_values_tell_of_passes_and_majorities():
    tasks = [[{"reward": 1.0, "said": "a"}, {"reward": 0.0, "said": "b"}], [{"reward": 1.0, "said": "c"}] * 2]
    told = importlib.import_module("nemo_gym.reward_profile").compute_pass_majority_metrics(tasks, answer_key="said")
    metrics, all_score_dicts, score_names, max_k = told
    assert (metrics["pass@1[avg-of-2]/accuracy"], metrics["pass@2/accuracy"], max_k) == (75.0, 100.0, 2)
    assert metrics["majority@2/accuracy"] == 75.0
    assert set(score_names) >= {"accuracy"}
    assert [[scores["accuracy"] for scores in task] for task in all_score_dicts] == [[1.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("wrapped", [DictConfig, dict])
def test_the_settings_of_an_instance_are_two_levels_down(wrapped):
    config = wrapped({"mine": {"responses_api_models": {"m": {"host": "h", "port": 1}, "n": {"port": 2}}}})
    assert global_config.get_first_server_config_dict(config, "mine") == {"host": "h", "port": 1}


def test_the_folders_of_a_checkout():
    assert Path(nemo_gym.__file__).parent == nemo_gym.ROOT_DIR
    assert nemo_gym.ROOT_DIR.parent == nemo_gym.PARENT_DIR
    assert nemo_gym.CACHE_DIR == nemo_gym.WORKING_DIR / "cache"
    assert nemo_gym.RESULTS_DIR == nemo_gym.WORKING_DIR / "results"


def test_an_imported_file_is_not_the_entrypoint():
    assert server_utils.is_nemo_gym_fastapi_entrypoint(__file__) is False


def test_an_open_port_is_none_of_the_disallowed():
    port = global_config.find_open_port()
    with socket.create_server(("127.0.0.1", port)):
        assert global_config.find_open_port() != port
    assert global_config.find_open_port([port]) != port
    with pytest.raises(PortTakenError):
        global_config.find_open_port(disallowed_ports=range(65536), max_retries=2)


@pytest.mark.parametrize(("told", "attempts"), [(None, 3), ("7", 7)])
def test_how_often_a_rollout_is_tried_is_the_environments_word(monkeypatch, told, attempts):
    monkeypatch.delenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", raising=False)
    if told is not None:
        monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", told)
    assert rollout_collection._get_max_rollout_attempts() == attempts


PATCHED = DictConfig(
    {
        "head_server": {"host": "127.0.0.1", "port": 1},
        "mine": {"resources_servers": {"m": {"host": "127.0.0.1", "port": 2}}},
    }
)


def test_what_is_patched_in_a_module_is_looked_up_there():
    with patch("nemo_gym.server_utils.get_global_config_dict", return_value=PATCHED):
        assert server_utils.get_server_url("mine") == "http://127.0.0.1:2"
        assert server_utils.ServerClient.load_head_server_config().port == 1
    with (
        patch("nemo_gym.rollout_collection.get_global_config_dict", return_value=PATCHED),
        pytest.raises(HeadServerNotFoundError, match=r"http://127\.0\.0\.1:1/"),
    ):
        rollout_collection.RolloutCollectionHelper().setup_server_client()
    # It is a `ValueError`, as those who catch the published one expect.
    assert issubclass(HeadServerNotFoundError, ValueError)


PROCESS = """
from nemo_gym.global_config import (
    CACHE_DIR_KEY_NAME, DISALLOWED_PORTS_KEY_NAME, HF_TOKEN_KEY_NAME, RESULTS_DIR_KEY_NAME, get_global_config_dict,
    get_hf_token, maybe_get_global_config_dict,
)
from nemo_gym.server_utils import get_server_url

print(maybe_get_global_config_dict())
config = get_global_config_dict()
print(get_global_config_dict() is config, maybe_get_global_config_dict() is config)
print(get_hf_token(), config[HF_TOKEN_KEY_NAME], get_server_url("mine"))
print([key in config for key in (CACHE_DIR_KEY_NAME, DISALLOWED_PORTS_KEY_NAME, RESULTS_DIR_KEY_NAME)])
"""


@pytest.mark.parametrize("given", ["by a variable", "by the command line"])
def test_a_process_reads_its_configuration_once_and_only_when_asked(tmp_path, given):
    config = {"hf_token": "hf_0nly4t3st", "mine": {"resources_servers": {"example_single_tool_call": {
        "entrypoint": "app.py", "domain": "other", "host": "h", "port": 2,
    }}}}  # fmt: skip
    told = OmegaConf.to_yaml(OmegaConf.create(config))
    (tmp_path / "mine.yaml").write_text(told)
    by_variable = given == "by a variable"
    printed = subprocess.run(
        [sys.executable, "-c", PROCESS, *([] if by_variable else ["+config_paths=[mine.yaml]"])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), **({"NEMO_GYM_CONFIG_DICT": told} if by_variable else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    keys = "[False, False, False]" if by_variable else "[True, True, True]"
    assert printed.stdout.splitlines() == [
        "None", "True True", "hf_0nly4t3st hf_0nly4t3st http://h:2", keys,
    ], printed.stderr  # fmt: skip


def test_a_parser_tells_of_servers_and_of_what_is_missing():
    parser = GlobalConfigDictParser()
    block = {"entrypoint": "app.py", "domain": "other"}
    initial = DictConfig({"mine": {"resources_servers": {"example_single_tool_call": block}}, "plain": 1})
    parsed = parser.parse_no_environment(initial)
    assert parsed["plain"] == 1
    assert [server.name for server in parser.filter_for_server_instance_configs(parsed)] == ["mine"]
    parser.raise_on_no_server_instances(parsed)
    parser.detect_and_report_almost_servers(parsed)
    assert parser.collect_missing_value_paths(DictConfig({"a": {"b": "???"}, "c": "???", "d": 1})) == ["a.b", "c"]
    with pytest.raises(NoServerInstancesError):
        parser.raise_on_no_server_instances(DictConfig({"plain": 1}))
    with pytest.raises(ConfigError):
        parser.parse_no_environment(DictConfig({"mine": {"resources_servers": {"m": {"entrypoint": "app.py"}}}}))
    config = GlobalConfigDictParserConfig(
        dotenv_path="env.yaml", initial_global_config_dict=initial, skip_load_from_cli=True, skip_load_from_dotenv=True
    )
    assert parser.parse(config)["plain"] == 1
    assert isinstance(GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, Mapping | DictConfig)


def test_a_collection_may_be_told_by_all_of_its_published_keys(tmp_path):
    keys = {
        "agent_name": "a", "input_jsonl_fpath": "in.jsonl", "output_jsonl_fpath": str(tmp_path / "out.jsonl"),
        "limit": 5, "num_repeats": {"a": 2, "_default": 1}, "num_repeats_add_seed": True, "resume_from_cache": True,
        "prompt_config": "p.yaml", "skills": {"path": "skills"}, "num_samples_in_parallel": 4,
        "responses_create_params": {"temperature": 0.5}, "disable_aggregation": True, "upload_rollouts": False,
        "rollout_collection_driver": None,
    }  # fmt: skip
    told = rollout_collection.RolloutCollectionConfig.model_validate(keys)
    assert (told.limit, told.num_samples_in_parallel, told.skills.path) == (5, 4, "skills")
    unset = {"num_samples_in_parallel": None, "limit": None, "agent_name": None, "prompt_config": None, "skills": None}
    usual = type(told)(input_jsonl_fpath="in.jsonl", output_jsonl_fpath="out.jsonl")
    assert type(told).model_validate({**usual.model_dump(), **unset}) == usual
    assert (told.responses_create_params, told.prompt_config) == ({"temperature": 0.5}, "p.yaml")


def test_the_modules_may_be_imported_in_any_order_and_in_a_loop():
    async def imported() -> list[types.ModuleType]:
        return [row.home for row in reversed(ROWS)]

    assert len(asyncio.run(imported())) == len(ROWS)
