"""All names that published folders import exist, and the simple ones work as expected."""

from __future__ import annotations

import importlib
import resource
import sys
from pathlib import Path

import orjson
import pytest

import nemo_gym
from nemo_gym.base_resources_server import normalize_tool_name
from nemo_gym.server_utils import SimpleServer, apply_rollout_prefix, rollout_path_prefix
from tests.each_case import each_case

IMPORTED = {
    "server_utils": """
        ServerClient raise_for_status get_response_json SESSION_ID_KEY request get_first_server_config_dict
        is_nemo_gym_fastapi_entrypoint get_server_url apply_rollout_prefix rollout_path_prefix
        get_global_aiohttp_client is_global_aiohttp_client_request_debug_enabled BaseServer SimpleServer ServerStatus
        DEFAULT_HEAD_SERVER_PORT HEAD_SERVER_KEY_NAME BaseServerConfig MAX_NUM_TRIES is_nemo_gym_fastapi_worker
        ClientResponse
    """,
    "base_resources_server": """
        BaseVerifyResponse BaseVerifyRequest BaseResourcesServerConfig SimpleResourcesServer BaseRunRequest
        BaseSeedSessionRequest BaseSeedSessionResponse AggregateMetricsRequest AggregateMetrics ReverifyMode
        NeMoGymResponse NEMO_GYM_MCP_METADATA_KEY NEMO_GYM_MCP_SESSION_TOKEN_HEADER RESERVED_MCP_TOOL_NAMES
        MCPServerMetadata normalize_tool_name BaseMultiRewardVerifyResponse
        ResourcesSeedSessionRequest ResourcesSeedSessionResponse ResourcesCloseSessionRequest
        ResourcesCloseSessionResponse
    """,
    "base_responses_api_agent": """
        BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent Body AggregateMetricsRequest AgentSeedSessionRequest
        AgentSeedSessionResponse AgentCloseSessionRequest AgentCloseSessionResponse AgentSessionState
        AgentSessionSetupError
    """,
    "episode_types": "EpisodeId TaskId",
    "tool_access": "DirectHttpToolAccess McpConnection McpToolAccess ToolAccess",
    "base_responses_api_model": """
        BaseResponsesAPIModelConfig SimpleResponsesAPIModel Body start_model_execution _orjson_dispatch_response
    """,
    "responses_streaming": "sanitize_streaming_responses_body",
    "token_id_capture": "current_capture_context",
    "token_id_capture.config": "token_id_capture_config",
    "token_id_capture.external_capture": "ExternalCaptureHandler make_external_capture_handler",
    "config_types": """
        ModelServerRef ResourcesServerRef AgentServerRef ServerRef AggregateMetricsRequest AggregateMetrics
        BaseServerConfig BaseRunServerConfig BaseRunServerInstanceConfig Domain DatasetConfig ConfigError OmegaConf
        ConfigPathNotFoundError MalformedConfigPathsError NoServerInstancesError ConfigMissingValuesError
        BaseUploadJsonlDatasetHuggingFaceConfig
        ConfigInterpolationError ServerRefNotFoundError InheritPathNotFoundError AlmostServerError
        ROLLOUT_PATH_PREFIX TOKEN_CAPTURE_PATH_SEGMENT
    """,
    "openai_utils": """
        NeMoGymResponse NeMoGymResponseCreateParamsNonStreaming NeMoGymEasyInputMessage NeMoGymResponseOutputMessage
        NeMoGymResponseOutputText NeMoGymResponseFunctionToolCall NeMoGymFunctionCallOutput
        NeMoGymResponseReasoningItem NeMoGymSummary NeMoGymChatCompletionCreateParamsNonStreaming NeMoGymResponseUsage
        NeMoGymChatCompletion NeMoGymResponseInputTokensDetails NeMoGymResponseOutputTokensDetails
        NeMoGymResponseOutputItem accumulate_response_usage NeMoGymAsyncOpenAI NeMoGymResponseOutputRefusal
        NeMoGymChatCompletionMessage NeMoGymChoice NeMoGymResponseOutputMessageForTraining NeMoGymResponseInput
        NeMoGymMessage NeMoGymResponseInputItem RATE_LIMIT_ERROR_CODES RETRY_ERROR_CODES
        NeMoGymChatCompletionAssistantMessageForTrainingParam NeMoGymChatCompletionAssistantMessageParam
        NeMoGymChatCompletionContentPartTextParam NeMoGymChatCompletionMessageForTraining
        NeMoGymChatCompletionMessageParam NeMoGymChatCompletionMessageToolCall
        NeMoGymChatCompletionMessageToolCallFunctionParam NeMoGymChatCompletionMessageToolCallParam
        NeMoGymChatCompletionSystemMessageParam NeMoGymChatCompletionToolMessageParam
        NeMoGymChatCompletionUserMessageParam NeMoGymFunction NeMoGymFunctionToolParam
        NeMoGymResponseFunctionToolCallForTraining NeMoGymResponseInputText REQUIRED_TOKEN_METADATA_FIELDS
        TOKEN_METADATA_FIELDS MAX_NUM_TRIES NeMoGymResponseFunctionCallOutput
        NeMoGymResponseMcpCall
    """,
    "global_config": """
        ROLLOUT_INDEX_KEY_NAME TASK_INDEX_KEY_NAME get_first_server_config_dict get_global_config_dict
        SKILLS_REF_KEY_NAME get_hf_token AGENT_REF_KEY_NAME ATTEMPT_INDEX_KEY_NAME CACHE_DIR_KEY_NAME
        DISALLOWED_PORTS_KEY_NAME DictConfig OmegaConf RESULTS_DIR_KEY_NAME find_open_port
        maybe_get_global_config_dict HF_TOKEN_KEY_NAME ROLLOUT_ID_KEY_NAME NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME
        OBSERVABILITY_ENABLED_KEY_NAME TOKEN_ID_CAPTURE_BLOCK TASK_SOURCE_KEY_NAME
    """,
    "mcp_auto_exposure": "maybe_auto_expose",
    "reward_profile": """
        compute_pass_majority_metrics highest_k_metrics compute_subset_metrics add_avg_sample_std_dev
        AggregateMetricsMixin compute_aggregate_metrics RewardProfiler
    """,
    "benchmarks": "BenchmarkConfig",
    "judge": "call_judge JudgeError reraise_judge_errors judge_failsafe",
    "package_info": "__package_name__ __version__",
    "path_utils": "failures_path_for",
    "profiling": "Profiler",
    "prompt": """
        PromptConfig load_prompt_config fill_prompt apply_prompt_to_row validate_prompt_compatibility
        materialize_prompts MaterializePromptsConfig
    """,
    "responses_converter": """
        ResponsesConverter VLLMConverter VLLMConverterResponsesToChatCompletionsState
        split_responses_input_output_items _usage_detail uuid4
    """,
    "sandbox": """
        AsyncSandbox ConnectableProvider ExecResult Sandbox SandboxCreateError SandboxCreateVerificationError
        SandboxEndpoint SandboxExecResult SandboxHandle SandboxResources SandboxSpec SandboxStatus
        SupportsSandboxEndpoint create_provider get_provider_class list_providers register_provider
        resolve_provider_config resolve_provider_metadata rewrite_image
    """,
    "sandbox.providers": "create_provider",
    "sandbox.utils": "CPU_CAP_ENV_VARS cpu_cap_env rewrite_image",
    "skills": """
        SkillsConfig SkillsRef SkillMetadata load_skill_directory stage_skills hash_skill_dir parse_skill_md
    """,
    "verifier_fixture": "VerifierFixture exercise_verifier_fixture",
}


@each_case("module", IMPORTED)
def test_every_published_name_exists(module):
    there = importlib.import_module(f"nemo_gym.{module}")
    assert [name for name in IMPORTED[module].split() if not hasattr(there, name)] == []
    assert set(IMPORTED[module].split()) <= set(there.__all__)


@each_case("name", ["RunHelper", "RunConfig", "TestConfig", "TestAllConfig", "PipListConfig"])
def test_moved_name_exists_at_both_places(name):
    old, new = (importlib.import_module(module) for module in ("nemo_gym.cli", "nemo_gym.cli.env"))
    assert getattr(new, name) is getattr(old, name)
    assert not hasattr(new, "Nonsense")


@pytest.mark.parametrize(("home", "name"), [("eval", "PrepareBenchmarkConfig"), ("general", "VersionConfig")])
def test_command_settings_exist_in_their_published_module(home, name):
    there = vars(importlib.import_module(f"nemo_gym.cli.{home}"))
    assert there["__all__"] == [name]
    assert there[name]().model_dump()


def test_search_roots_have_their_published_names(tmp_path, monkeypatch):
    monkeypatch.setenv(nemo_gym.NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.yaml").write_text("a: 1")
    assert nemo_gym.component_search_roots()[0] == tmp_path
    assert nemo_gym.component_search_roots(sys_path=["/further"])[-1] == Path("/further")
    assert nemo_gym._resolve_under_cwd_or_install("mine.yaml") == tmp_path / "mine.yaml"
    assert nemo_gym._resolve_under_cwd_or_install("mine.yaml", validator=Path.is_dir) is None
    nemo_gym._augment_sys_path()
    nemo_gym._augment_sys_path()
    assert sys.path.count(str(tmp_path)) == 1


def test_model_servers_need_no_recorder_of_their_own():
    capture = importlib.import_module("nemo_gym.token_id_capture")
    settings, external = (
        importlib.import_module(f"nemo_gym.token_id_capture.{name}") for name in ("config", "external_capture")
    )
    assert capture.current_capture_context() is None
    assert settings.token_id_capture_config({"token_id_capture": {"enabled": True}}) is None
    assert external.make_external_capture_handler(object(), store="mine") is None


def test_answer_of_a_model_server_becomes_a_response():
    server = importlib.import_module("nemo_gym.base_responses_api_model")
    for answer in ({"id": "r"}, server.ModelCallRecord(call_index=0)):
        response = server._orjson_dispatch_response(answer)
        expected = answer if isinstance(answer, dict) else answer.model_dump()
        assert (orjson.loads(response.body), response.media_type) == (expected, "application/json")
        assert server._orjson_dispatch_response(response) is response


def test_streaming_request_becomes_a_plain_one():
    streaming = importlib.import_module("nemo_gym.responses_streaming")
    body = {"input": "hi", "stream": True, "stream_options": {}, "temperature": None, "prompt_cache": "x"}
    assert streaming.sanitize_streaming_responses_body(body) == {"input": "hi"}


def test_constants_have_their_published_values():
    module = importlib.import_module("nemo_gym.server_utils")
    assert (module.SESSION_ID_KEY, module.DEFAULT_HEAD_SERVER_PORT, module.HEAD_SERVER_KEY_NAME) == (
        "session_id", 11000, "head_server",
    )  # fmt: skip
    assert module.MAX_NUM_TRIES == importlib.import_module("nemo_gym.openai_utils").MAX_NUM_TRIES == 3
    module = importlib.import_module("nemo_gym.global_config")
    assert (module.OBSERVABILITY_ENABLED_KEY_NAME, module.TOKEN_ID_CAPTURE_BLOCK, module.TASK_SOURCE_KEY_NAME) == (
        "observability_enabled", "token_id_capture", "task_source",
    )  # fmt: skip
    module = importlib.import_module("nemo_gym.config_types")
    assert (module.ROLLOUT_PATH_PREFIX, module.TOKEN_CAPTURE_PATH_SEGMENT) == ("ng-rollout", "training-token-capture")
    assert importlib.import_module("nemo_gym.base_resources_server").NEMO_GYM_MCP_METADATA_KEY == "mcp"


@each_case(
    ("rollout_id", "captures", "prefix"),
    [
        (None, False, ""),
        (None, True, ""),
        ("3-1-a2", False, "/ng-rollout/3-1-a2"),
        ("3-1", True, "/ng-rollout/3-1/training-token-capture"),
    ],
)
def test_prefix_assigns_calls_to_a_rollout(rollout_id, captures, prefix):
    assert rollout_path_prefix(rollout_id, token_capture=captures) == prefix
    assert apply_rollout_prefix("http://h:1", rollout_id, token_capture=captures) == f"http://h:1{prefix}"


@each_case(
    ("name", "server", "plain"),
    [
        ("mcp__shop__buy", None, "buy"),
        ("mcp__shop__buy__now", None, "buy__now"),
        ("mcp__shop__buy", "shop", "buy"),
        ("mcp__my__shop__buy", "my__shop", "buy"),
        ("mcp__shop__buy", "bank", "mcp__shop__buy"),
        ("buy", "shop", "buy"),
        ("mcp__buy", None, "mcp__buy"),
    ],
)
def test_tool_name_loses_its_server_prefix(name, server, plain):
    assert normalize_tool_name(name, server) == plain


def test_open_file_limit_is_never_lowered():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        SimpleServer.set_ulimit(target_soft_limit=300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        SimpleServer.set_ulimit(target_soft_limit=280)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
