"""Published names of servers, their configuration and the calls between them."""

from __future__ import annotations

import fastapi
import omegaconf

from nemo_gym import base_responses_api_agent, config_types, global_config, openai_utils, server_utils
from tests.published.interface.shapes import (
    NOTHING_IN_PARTICULAR,
    RECORDS,
    STYLE,
    P,
    Row,
    derived_from,
    extra,
    fields,
    is_the,
    kind_of,
    members,
    methods,
    reads,
    signature,
    value,
)

RUN_SERVER = "host! port! num_workers=None entrypoint! domain=None name!"
NAMES = "tests/published/test_names.py::"
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
    ), "test_client_may_be_a_bare_mock"),
    Row(2, "base_resources_server", "BaseVerifyResponse", (
        fields("responses_create_params! response! reward!"), extra(None), derived_from("BaseVerifyRequest"),
    ), "test_graded_row_needs_reward_and_drops_extra_fields"),
    Row(4, "base_resources_server", "BaseVerifyRequest", (
        fields("responses_create_params! response!"), extra(None), derived_from("BaseRunRequest"),
    ), "test_graded_row_needs_reward_and_drops_extra_fields"),
    Row(5, "base_resources_server", "BaseResourcesServerConfig", (
        fields(f"{RUN_SERVER} expose_tools_over_mcp=False"), derived_from("BaseRunServerInstanceConfig"), extra(None),
    ), "test_reverify_mode_belongs_to_the_config_class"),
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
        "test_graded_row_needs_reward_and_drops_extra_fields"),
    Row(9, "config_types", "ModelServerRef", (
        fields("type! name!"), reads({"type": "responses_api_models", "name": "m"}, {"type": "models", "name": "m"}),
    ), NOTHING_IN_PARTICULAR),
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
        "test_raise_for_status_keeps_the_body"),
    Row(16, "server_utils", "get_response_json", (signature("(response)", awaited=True),),
        "test_response_json_needs_only_read"),
    Row(18, "config_types", "ResourcesServerRef", (
        fields("type! name!"), reads({"type": "resources_servers", "name": "m"}, {"type": "resources", "name": "m"}),
    ), NOTHING_IN_PARTICULAR),
    Row(22, "base_responses_api_agent", "Body", (is_the(fastapi, "Body"),), NOTHING_IN_PARTICULAR),
    Row(23, "judge", "call_judge",
        (signature("(server_client, *, server_name, url_path, json, response_model)", awaited=True),),
        f"{P}test_judge.py::test_any_failed_call_is_a_judge_failure"),
    Row(24, "server_utils", "SESSION_ID_KEY", (value("session_id"),), NOTHING_IN_PARTICULAR),
    Row(26, "judge", "JudgeError", (kind_of(Exception), signature("(message, *, server=None)")),
        f"{P}test_judge.py::test_failed_judge_is_recorded_in_the_row"),
    Row(28, "base_resources_server", "BaseSeedSessionRequest", (fields(""), extra(None)), NOTHING_IN_PARTICULAR),
    Row(30, "base_resources_server", "BaseSeedSessionResponse", (fields(""), extra(None)), NOTHING_IN_PARTICULAR),
    Row(32, "base_resources_server", "AggregateMetricsRequest", (
        fields("verify_responses!"), is_the(config_types, "AggregateMetricsRequest"),
    ), NOTHING_IN_PARTICULAR),
    Row(45, "base_resources_server", "AggregateMetrics", (
        fields("group_level_metrics=[] agent_metrics={} key_metrics={}"), is_the(config_types, "AggregateMetrics"),
    ), NOTHING_IN_PARTICULAR),
    Row(51, "base_resources_server", "ReverifyMode", (
        members(STATELESS="stateless", UNSUPPORTED="unsupported", UNKNOWN="unknown"),
    ), "tests/servers/test_resources.py::test_reverify_mode_comes_from_the_config"),
    Row(52, "config_types", "AggregateMetricsRequest", (
        fields("verify_responses!"), reads({"verify_responses": [{"reward": 1.0}]}, {"verify_responses": [1.0]}),
    ), NOTHING_IN_PARTICULAR),
    Row(56, "server_utils", "request", (signature("(method, url, _internal=False, **kwargs)", awaited=True),),
        "tests/http/test_requests.py::test_json_is_sent_and_response_is_unread"),
    Row(57, "base_responses_api_model", "Body", (is_the(fastapi, "Body"),), NOTHING_IN_PARTICULAR),
    Row(65, "server_utils", "get_first_server_config_dict", (is_the(global_config, "get_first_server_config_dict"),),
        "test_instance_settings_are_two_levels_down"),
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
    Row(79, "server_utils", "get_server_url", (signature("(server_name)"),),
        "test_patched_configuration_of_a_module_is_used"),
    Row(81, "base_responses_api_model", "CaptureStore", (
        signature("(root)"),
        methods(
            path_for="(self, rollout_id)", incomplete_path_for="(self, rollout_id)",
            mark_incomplete="(self, rollout_id)", is_incomplete="(self, rollout_id)",
            record="(self, rollout_id, record)", read="(self, rollout_id)", read_available="(self, rollout_id)",
        ),
    ), f"{RECORDS}test_store.py::test_recorded_calls_are_read_back"),
    Row(83, "judge", "reraise_judge_errors", (signature("(awaitable)", awaited=True),),
        f"{P}test_judge.py::test_errors_of_custom_calls_become_judge_failures"),
    Row(88, "base_resources_server", "NEMO_GYM_MCP_METADATA_KEY", (value("mcp"),),
        "tests/servers/mcp/test_endpoint.py::test_seed_response_contains_the_mcp_address"),
    Row(89, "base_responses_api_model", "read_model_call_records", (signature("(store, rollout_id)"),),
        f"{RECORDS}test_store.py::test_calls_are_numbered_in_the_order_of_the_file"),
    Row(101, "server_utils", "apply_rollout_prefix", (signature("(base_url, rollout_id, *, token_capture=False)"),),
        f"{NAMES}test_prefix_assigns_calls_to_a_rollout"),
    Row(106, "base_resources_server", "BaseMultiRewardVerifyResponse", (
        fields("responses_create_params! response! reward! reward_components!"), derived_from("BaseVerifyResponse"),
    ), "test_graded_row_needs_reward_and_drops_extra_fields"),
    Row(107, "base_responses_api_agent", "<module>", (value(base_responses_api_agent),),
        f"{RECORDS}test_paths.py::test_published_model_server_lookup_can_be_replaced"),
    Row(108, "base_responses_api_agent", "AggregateMetricsRequest", (
        is_the(config_types, "AggregateMetricsRequest"),
    ), NOTHING_IN_PARTICULAR),
    Row(109, "base_responses_api_model", "ModelCallRecord", (
        fields("call_index! model_call_id=None response_id=None model_ref=None model=None dialect=None "
               "status_code=None response_status=None finish_reason=None started_at=None completed_at=None "
               "tokens_in=None tokens_out=None tokens_reasoning=None tokens_total=None request=None response=None "
               "request_raw=None response_raw=None tool_calls=None reasoning_content=None cache_hit=None "
               "cached_tokens=None cache_creation_tokens=None error_category=None latency_total_ms=None "
               "latency_ttft_ms=None"),
    ), f"{RECORDS}test_observations.py::test_record_of_a_call_needs_only_its_index"),
    Row(110, "base_responses_api_model", "_CaptureMiddleware", (signature("(app, store, model_ref=None)"),),
        f"{RECORDS}test_middleware.py::test_only_model_calls_of_rollouts_are_recorded"),
    Row(111, "base_responses_api_model", "aggregate_model_call_metrics", (signature("(store, rollout_id)"),),
        f"{RECORDS}test_store.py::test_unreported_sums_are_unknown"),
    Row(112, "base_responses_api_model", "merge_model_call_capture_into_record", (
        signature("(record, dirs, *, include_payloads=False)"),
    ), f"{RECORDS}test_attachment.py::test_result_gets_the_calls_of_its_rollout"),
    Row(113, "config_types", "BaseServerConfig", (fields("host! port! num_workers=None"),), NOTHING_IN_PARTICULAR),
    Row(114, "config_types", "OmegaConf", (is_the(omegaconf, "OmegaConf"),), NOTHING_IN_PARTICULAR),
    Row(124, "judge", "judge_failsafe", (signature("(verify_fn)"),),
        f"{P}test_judge.py::test_failed_judge_is_recorded_in_the_row"),
    Row(125, "mcp_auto_exposure", "maybe_auto_expose", (signature("(server, app)"),),
        "tests/servers/mcp/test_endpoint.py::test_typed_routes_of_published_style_are_tools"),
    Row(153, "rollout_correlation", "RolloutContextMiddleware", (signature("(app)"),),
        "tests/servers/test_agent.py::test_only_a_valid_rollout_prefix_is_stripped"),
    Row(169, "server_utils", "<module>", (value(server_utils),),
        "test_patched_configuration_of_a_module_is_used"),
    Row(170, "server_utils", "get_global_aiohttp_client", (signature("()"),),
        f"{STYLE}test_calls_by_address_ignore_the_proxy"),
    Row(171, "server_utils", "is_global_aiohttp_client_request_debug_enabled", (signature("()"),),
        f"{STYLE}test_calls_by_address_ignore_the_proxy"),
    Row(172, "server_utils", "rollout_path_prefix", (signature("(rollout_id, *, token_capture=False)"),),
        f"{NAMES}test_prefix_assigns_calls_to_a_rollout"),
]  # fmt: skip
