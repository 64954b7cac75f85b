"""The own tests of agents and models in the published style pass and cover every listed idiom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.published.style.folders import AGENTS_AND_MODEL_SERVERS
from tests.published.style.own_tests import OwnTests

pytestmark = pytest.mark.slow

IDIOMS = {
    "responses-request-response-body": "tool_loop_agent::TestApp::test_tool_call_then_answer",
    "responses-request-body": "jar_agent::TestJarAgent::test_called_as_methods",
    "responses-body": "harness_agent::test_the_models_address",
    "run-request-body": "tool_loop_agent::TestApp::test_run_chains_cookies",
    "run-body": "harness_agent::test_run_sums_the_usage_of_all_attempts",
    "run-request-response-body": "jar_agent::TestJarAgent::test_cookies_of_all_calls_come_back",
    "cookies-from-call-to-call": "tool_loop_agent::TestApp::test_run_chains_cookies",
    "cookies-of-the-model-apart": "tool_loop_agent::TestApp::test_cookies_of_both_servers_are_kept_separate",
    "set-cookie-on-the-response": "jar_agent::TestJarAgent::test_cookies_of_all_calls_come_back",
    "post-of-a-pydantic-body": "tool_loop_agent::TestApp::test_tool_call_then_answer",
    "raise-for-status-response-content": "tool_loop_agent::TestApp::test_failed_tool_returns_its_body_to_the_model",
    "raise-for-status-in-a-handler": "tool_loop_agent::TestApp::test_a_failed_model_fails_the_answer",
    "get-response-json-of-a-mock": "observed_agent::test_answer_contains_the_observations",
    "model-copy-of-the-body": "tool_loop_agent::TestApp::test_tool_call_then_answer",
    "incomplete-details": "tool_loop_agent::TestApp::test_a_cut_off_answer_ends_the_loop",
    "max-steps": "tool_loop_agent::TestApp::test_max_steps",
    "accumulate-response-usage": "tool_loop_agent::TestApp::test_usage_is_summed",
    "usage-sum-from-list": "harness_agent::test_sum_from_list",
    "arbitrary-types-allowed": "harness_agent::test_a_field_of_any_type",
    "url-path-for-run-and-request": "tool_loop_agent::TestApp::test_paths_are_plain_where_nothing_is_captured",
    "resolve-model-base-url-observed": "harness_agent::test_the_models_address_where_calls_are_recorded",
    "patched-first-server-config-dict": "harness_agent::test_the_models_address",
    "skip-verification": "tool_loop_agent::TestApp::test_skip_verification",
    "aggregate-metrics-proxied": "tool_loop_agent::TestApp::test_metrics_are_those_of_the_environment",
    "subclass-of-simple-agent": "second_look_agent::test_two_answers_of_the_simple_agent",
    "subclass-that-answers-a-body-alone": "halved_agent::test_an_answer_of_the_body_alone",
    "subclass-whose-metrics-are-its-own": "halved_agent::test_metrics",
    "run-answers-a-json-response": "debate_agent::TestApp::test_run",
    "run-with-a-mocked-request": "debate_agent::TestApp::test_run_needs_no_real_request",
    "a-middleware-of-an-agent": "debate_agent::TestApp::test_run",
    "http-exception-of-a-run": "debate_agent::TestApp::test_a_failed_answer",
    "aiohttps-errors-and-timeouts": "panel_agent::TestPanel::test_rejected_tools_are_reported",
    "cookies-merged-by-hand": "panel_agent::TestPanel::test_cookies_of_all_servers_are_merged",
    "retries-of-one-call": "panel_agent::TestPanel::test_an_unreachable_server_is_tried_three_times",
    "one-model-in-front-of-another": "memo_model::TestMemo::test_memo",
    "chat-by-way-of-responses": "memo_model::TestMemo::test_chat",
    "subclass-of-openai-model": "tempered_openai_model::test_the_temperature_is_bounded",
    "subclass-of-vllm-model": "counted_vllm_model::TestApp::test_chat_completions",
    "model-responses-with-a-request": "scripted_model::TestApp::test_a_session_of_its_own",
    "model-chat-without-a-request": "scripted_model::TestApp::test_chat_completions_without_a_request",
    "model-chat-with-a-request": "thin_model::test_a_leading_request",
    "model-streams": "scripted_model::TestApp::test_strict_params_and_streams",
    "model-called-as-a-method": "scripted_model::TestApp::test_called_as_a_method",
    "session-pinned-to-a-base-url": "pinned_model::TestApp::test_a_session_keeps_its_endpoint",
    "one-base-url": "pinned_model::TestApp::test_one_base_url",
    "client-replaced-by-a-mock": "pinned_model::TestApp::test_the_client_may_be_replaced",
    "patched-uuid4": "thin_model::test_the_ids_of_items_are_known",
    "think-tags-of-a-converter": "counted_vllm_model::TestApp::test_reasoning_text_and_call",
    "assigned-fields-of-a-converter": "thin_model::test_reasoning_may_stay_in_the_text",
    "execution-of-a-model-call": "traced_vllm_model::test_upstream_and_local_answers",
    "forwarded-body": "forwarding_agent::test_the_body_is_forwarded_as_it_came",
    "observations-of-an-agent": "observed_agent::test_answer_contains_the_observations",
    "rollout-id-of-a-prefixed-call": "reporting_agent::test_prefixed_call_is_observed[]",
    "path-for-a-stub-of-a-request": "reporting_agent::test_stubs_of_requests_have_paths",
    "observations-are-strict": "observed_agent::test_observations_are_strict",
    "sentinel-failure-class": "sentinel_agent::test_sentinels[bad-expected3]",
    "sentinel-terminal": "sentinel_agent::test_sentinels[hopeless-expected4]",
    "sentinel-no-persist": "sentinel_agent::test_sentinels[passing-expected5]",
    "mask-sample": "sentinel_agent::test_sentinels[masked-expected2]",
    "retries-by-running-again": "sentinel_agent::test_sentinels[good_in_the_end-expected1]",
    "calls-by-address": "address_agent::test_everything_is_called_by_its_address",
    "sandbox-spec-given-at-the-start": "own_provider_agent::test_files_and_workdir_are_the_frameworks_business",
    "sandbox-provider-of-any-service": "remote_sandbox_agent::test_a_server_of_any_provider_is_constructed[daytona]",
    "sandbox-serialized-and-connected": "shared_sandbox_agent::test_the_descriptor_is_json_and_leads_to_the_sandbox",
    "sandbox-resources-from-mapping": "shared_sandbox_agent::test_resources_of_a_config_block",
    "provider-of-sandboxes-registered": "sandboxed_agent::test_the_check_decides[0-1.0]",
}
"""The own test that covers each idiom."""


@pytest.fixture(scope="module")
def outcomes(place):
    """Return each folder's outcome, and the names of all passed tests."""
    # These tests need only one of the installed plugins.
    options = {"PYTEST_ADDOPTS": "-rA -p pytest_asyncio.plugin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    by_folder = OwnTests(place, "ray", AGENTS_AND_MODEL_SERVERS, **options).outcomes
    passed = {
        f"{Path(folder).name}::{line.partition('test_app.py::')[2]}"
        for folder, each in by_folder.items()
        for line in each["output"].splitlines()
        if line.startswith("PASSED ")
    }
    return by_folder, passed


@pytest.mark.parametrize("folder", AGENTS_AND_MODEL_SERVERS)
def test_own_tests_pass(outcomes, folder):
    by_folder, _ = outcomes
    assert by_folder[folder]["code"] == os.EX_OK, by_folder[folder]["output"]


@pytest.mark.parametrize("idiom", IDIOMS)
def test_own_test_covers_idiom(outcomes, idiom):
    _, passed = outcomes
    assert IDIOMS[idiom] in passed
