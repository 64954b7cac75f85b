"""Published names for runs: configuration, sandboxes, rollouts, metrics and files."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import omegaconf
from pydantic import BaseModel

from nemo_gym import rollout_collection
from nemo_gym.global_config import GlobalConfigDictParser
from tests.published.interface.shapes import (
    NOTHING_IN_PARTICULAR,
    RECORDS,
    STRICT,
    STYLE,
    P,
    Row,
    fields,
    is_callable,
    is_the,
    kind_of,
    members,
    methods,
    signature,
    value,
)


def is_folder(thing: Any) -> None:
    assert isinstance(thing, Path)
    assert thing.is_absolute()


PROVIDER = ("exec", "create", "upload_file", "download_file", "status", "endpoint", "close", "aclose")


def provides(thing: Any) -> None:
    assert [name for name in PROVIDER if not inspect.iscoroutinefunction(getattr(thing, name, None))] == []


TOOL_CALL = (
    "kind='tool_call' invocation_id! tool_call_id! sandbox_id=None tool_name=None started_at=None completed_at=None "
    "duration_ms=None timing_source=None status='unknown' error_type=None"
)
S = "tests/sandbox/"
EXEC = "async (self, command, cwd=None, env=None, timeout_s=180.0, user=None)"
ROWS = [
    Row(19, "reward_profile", "compute_pass_majority_metrics",
        (signature("(tasks, score_fn=None, answer_key=None)"),), "test_pass_majority_metrics_return_four_values"),
    Row(21, "reward_profile", "highest_k_metrics",
        (signature("(agent_metrics, pattern, score_names=None, exclude_names=None)"),),
        "tests/metrics/test_pass_at_k.py::test_entries_of_the_largest_k_are_selected"),
    Row(33, "global_config", "ROLLOUT_INDEX_KEY_NAME", (value("_ng_rollout_index"),), NOTHING_IN_PARTICULAR),
    Row(35, "global_config", "TASK_INDEX_KEY_NAME", (value("_ng_task_index"),), NOTHING_IN_PARTICULAR),
    Row(38, "reward_profile", "compute_subset_metrics",
        (signature("(tasks, subset_key, score_fn=None, answer_key=None)"),),
        "tests/metrics/test_pass_at_k.py::test_subsets_have_metrics_prefixed_with_their_name"),
    Row(39, "sandbox", "SandboxSpec", (
        signature("(image=None, ttl_s=None, ready_timeout_s=None, workdir=None, env=<factory>, files=<factory>, "
                  "metadata=<factory>, resources=<factory>, entrypoint=None, provider_options=<factory>, ports=())"),
    ), f"{S}test_spec.py::test_spec_copies_plain_mappings"),
    Row(41, "global_config", "get_first_server_config_dict", (signature("(global_config_dict, top_level_path)"),),
        "test_instance_settings_are_two_levels_down"),
    Row(42, "sandbox", "AsyncSandbox", (
        signature("(provider, spec=None)"),
        methods(start="async (self, spec=None)", exec=EXEC, stop="async (self)", status="async (self)",
                upload="async (self, local_path, remote_path)", download="async (self, remote_path, local_path)",
                endpoint="async (self, port)", serialize="async (self, *, scope=None)",
                connect="async (descriptor, *, provider)"),
    ), f"{S}test_sandbox.py::test_calls_reach_provider_with_their_arguments"),
    Row(43, "", "PARENT_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(44, "global_config", "get_global_config_dict", (
        signature("(global_config_dict_parser_config=None, "
                  f"global_config_dict_parser_cls={GlobalConfigDictParser!r})"),
    ), "test_process_loads_its_configuration_lazily_and_once"),
    Row(47, "rollout_observability", "AgentInvocation", (
        STRICT, fields("kind='agent_invocation' invocation_id! parent_invocation_id=None spawned_by_tool_call_id=None "
                       "status='unknown' duration_ms=None error_type=None model_calls=[] conversation=[]"),
    ), f"{RECORDS}test_joining.py::test_call_belongs_to_the_first_invocation_naming_it"),
    Row(48, "rollout_observability", "ObservationGap", (STRICT, fields("code! invocation_id=None detail=None")),
        f"{RECORDS}test_trajectory.py::test_invalid_parts_are_gaps"),
    Row(49, "sandbox", "SandboxResources", (
        signature("(cpu=None, memory_mib=None, disk_gib=None, gpu=None, gpu_type=None)"),
    ), f"{S}bubblewrap/test_confinement.py::test_memory_is_bounded"),
    Row(50, "prompt", "load_prompt_config", (signature("(path)"),),
        f"{P}test_prompt.py::test_prompt_path_may_be_relative_or_absolute"),
    Row(54, "rollout_observability", "AgentObservationBundle", (STRICT, fields("source! records=[] gaps=[]")),
        f"{STYLE}test_agent_observations_are_joined_with_its_calls"),
    Row(55, "rollout_observability", "ToolCallObservation", (STRICT, fields(TOOL_CALL)),
        f"{STYLE}test_agent_observations_are_joined_with_its_calls"),
    Row(59, "prompt", "PromptConfig", (fields("user! system=None"),),
        f"{P}test_prompt.py::test_system_message_is_optional"),
    Row(60, "rollout_observability", "AgentEpisode", (signature("(response, observations)"),),
        f"{RECORDS}test_observations.py::test_episode_is_a_response_with_observations"),
    Row(61, "rollout_observability", "ContextCompactionObservation", (
        STRICT, fields("kind='context_compaction' invocation_id! observed_at=None trigger=None tokens_before=None "
                       "tokens_after=None outcome='unknown' summary=None first_kept_item_id=None "
                       "before_model_call=None model_calls=[] after_model_call=None"),
    ), f"{RECORDS}test_joining.py::test_calls_of_a_compaction_belong_to_its_invocation"),
    Row(62, "rollout_observability", "ModelCallRef", (
        STRICT, fields("model_call_id=None model_ref=None response_id=None"),
    ), f"{RECORDS}test_joining.py::test_reference_is_completed_from_its_only_match"),
    Row(63, "sandbox", "resolve_provider_config", (signature("(ref_or_mapping, named_configs=None)"),),
        f"{S}test_config.py::test_provider_is_resolved_from_block_or_name"),
    Row(64, "sandbox", "resolve_provider_metadata", (signature("(ref_or_mapping, named_configs=None)"),),
        f"{S}test_config.py::test_provider_is_resolved_from_block_or_name"),
    Row(75, "rollout_collection", "NG_FAILURE_CLASS_KEY", (value("_ng_failure_class"),),
        f"{STYLE}test_sentinels_select_the_results_file"),
    Row(76, "rollout_collection", "NG_NO_PERSIST_KEY", (value("_ng_no_persist"),),
        f"{STYLE}test_sentinels_select_the_results_file"),
    Row(77, "sandbox.config", "resolve_provider_config", (signature("(ref_or_mapping, named_configs=None)"),),
        f"{S}test_config.py::test_published_import_paths_export_same_objects"),
    Row(78, "sandbox.config", "resolve_provider_metadata", (signature("(ref_or_mapping, named_configs=None)"),),
        f"{S}test_config.py::test_published_import_paths_export_same_objects"),
    Row(80, "prompt", "fill_prompt", (signature("(cfg, row)"),),
        f"{P}test_prompt.py::test_missing_prompt_field_lists_available_fields"),
    Row(82, "global_config", "SKILLS_REF_KEY_NAME", (value("skills_ref"),),
        f"{P}test_skills.py::test_row_is_stamped_with_its_skill_folder"),
    Row(85, "rollout_collection", "NG_TERMINAL_KEY", (value("_ng_failure_terminal"),),
        f"{STYLE}test_sentinels_select_the_results_file"),
    Row(86, "sandbox", "SandboxExecResult", (signature("(stdout=None, stderr=None, return_code=0, error_type=None)"),),
        f"{S}bubblewrap/test_commands.py::test_exit_codes_match_those_of_shell"),
    Row(87, "sandbox", "SandboxStatus", (
        members(STARTING="starting", RUNNING="running", STOPPED="stopped", ERROR="error", UNKNOWN="unknown"),
    ),
        f"{S}test_spec.py::test_values_have_their_published_form"),
    Row(96, "rollout_collection", "RolloutCollectionHelper", (
        signature("()"),
        methods(
            run_examples="(self, examples, head_server_config=None, semaphore=None)",
            run_from_config="async (self, config)",
            _preprocess_rows_from_config="(self, config)",
            _call_aggregate_metrics="async (self, results, rows, output_path)",
            setup_server_client="(self, head_server_config=None)",
        ),
    ), "tests/frameworks/test_training_loop.py::test_framework_starts_servers_and_trains_on_rollouts"),
    Row(97, "sandbox", "Sandbox", (
        signature("(provider, spec=None)"), methods(exec=EXEC.removeprefix("async "), stop="(self)"),
    ), f"{S}test_sandbox.py::test_sync_sandbox_works_without_event_loop"),
    Row(98, "sandbox", "SandboxCreateError", (kind_of(Exception),),
        f"{S}bubblewrap/test_lives.py::test_impossible_sandbox_is_rejected_with_reason"),
    Row(99, "sandbox", "SandboxHandle", (signature("(sandbox_id, provider_name='', raw=None)"),),
        f"{S}test_sandbox.py::test_calls_reach_provider_with_their_arguments"),
    Row(100, "sandbox", "register_provider", (signature("(name, cls, *, override=False)"),),
        f"{S}test_config.py::test_custom_provider_is_registered_or_named_by_path"),
    Row(102, "skills", "stage_skills", (signature("(path, dest)"),),
        f"{P}test_skills.py::test_agent_gets_its_own_copy"),
    Row(103, "global_config", "get_hf_token", (signature("()"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(104, "", "CACHE_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(105, "", "RESULTS_DIR", (is_folder,), "test_the_folders_of_a_checkout"),
    Row(115, "global_config", "AGENT_REF_KEY_NAME", (value("agent_ref"),), NOTHING_IN_PARTICULAR),
    Row(116, "global_config", "ATTEMPT_INDEX_KEY_NAME", (value("_ng_attempt_index"),),
        f"{STYLE}test_sentinels_select_the_results_file"),
    Row(117, "global_config", "CACHE_DIR_KEY_NAME", (value("cache_dir"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(118, "global_config", "DISALLOWED_PORTS_KEY_NAME", (value("disallowed_ports"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(119, "global_config", "DictConfig", (is_the(omegaconf, "DictConfig"),), NOTHING_IN_PARTICULAR),
    Row(120, "global_config", "OmegaConf", (is_the(omegaconf, "OmegaConf"),), NOTHING_IN_PARTICULAR),
    Row(121, "global_config", "RESULTS_DIR_KEY_NAME", (value("results_dir"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(122, "global_config", "find_open_port", (signature("(disallowed_ports=None, max_retries=50)"),),
        "test_open_port_is_not_disallowed"),
    Row(123, "global_config", "maybe_get_global_config_dict", (signature("()"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(143, "path_utils", "failures_path_for", (signature("(path)"),),
        f"{P}test_path_utils.py::test_failures_file_is_next_to_the_results"),
    Row(144, "profiling", "Profiler", (signature("(name, base_profile_dir)"),),
        f"{P}test_profiling.py::test_profiler_measures_between_start_and_stop"),
    Row(145, "prompt", "apply_prompt_to_row", (signature("(row, cfg)"),),
        f"{P}test_prompt.py::test_row_keeps_its_other_fields"),
    Row(148, "reward_profile", "add_avg_sample_std_dev", (
        signature("(metrics, all_score_dicts, score_names, max_k)"),
    ), "tests/metrics/test_pass_at_k.py::test_average_sample_deviation_is_added_on_request"),
    Row(149, "rollout_collection", "<module>", (value(rollout_collection),),
        "test_patched_configuration_of_a_module_is_used"),
    Row(150, "rollout_collection", "RolloutCollectionConfig", (
        fields("input_jsonl_fpath! output_jsonl_fpath! agent_name=None limit=None num_repeats_add_seed=False "
               "resume_from_cache=False prompt_config=None skills=None responses_create_params={} "
               "disable_aggregation=False"),
    ), "test_collection_accepts_all_published_keys"),
    Row(151, "rollout_collection", "_attach_trajectory_record", (is_callable,),
        f"{RECORDS}test_trajectory.py::test_trajectory_of_the_agent_is_completed"),
    Row(152, "rollout_collection", "_get_max_rollout_attempts", (signature("()"),),
        "test_environment_variable_sets_rollout_attempts"),
    Row(154, "rollout_observability", "TrajectoryRecord", (
        STRICT, fields("schema_version='1.0' task_id! rollout_id! invocations=[] turns=[] model_calls=[] "
                       "tool_calls=[] gaps=[]"),
    ), f"{RECORDS}test_collection.py::test_each_trajectory_has_calls_and_turn"),
    Row(155, "rollout_observability", "TrajectoryToolCall", (STRICT, fields(f"{TOOL_CALL} output=None")),
        f"{RECORDS}test_trajectory.py::test_observed_tool_calls_are_laid_over_the_agents"),
    Row(156, "rollout_observability", "TrajectoryTurn", (
        STRICT, fields("invocation_id! task_id! rollout_id! turn_no! timestamp! question=None answer=None "
                       "reasoning_content=None resolved=None step_count! model_calls=[]"),
    ), f"{RECORDS}test_observations.py::test_turn_contains_anything_as_its_texts"),
    Row(157, "sandbox", "SandboxEndpoint", (signature("(endpoint, headers=<factory>)"),),
        f"{S}test_command_lines.py::test_container_status_and_endpoint"),
    Row(158, "sandbox", "create_provider", (signature("(config)"),),
        f"{S}test_config.py::test_unknown_or_invalid_options_are_named"),
    Row(159, "sandbox", "get_provider_class", (signature("(name)"),),
        f"{S}test_config.py::test_built_in_providers_are_found_by_name"),
    Row(160, "sandbox", "list_providers", (signature("()"),),
        f"{S}test_config.py::test_built_in_providers_are_found_by_name"),
    Row(161, "sandbox", "rewrite_image", (signature("(image, rewrites=None)"),),
        f"{S}test_config.py::test_first_matching_image_prefix_is_rewritten"),
    Row(162, "sandbox.providers.apptainer", "ApptainerProvider", (provides,),
        f"{S}test_command_lines.py::test_apptainer_instance_from_start_to_stop"),
    Row(163, "sandbox.providers.apptainer", "provider", (
        lambda thing: value("nemo_gym.sandbox.providers.apptainer.provider")(thing.__name__),
    ), NOTHING_IN_PARTICULAR),
    Row(164, "sandbox.providers.base", "SandboxCreateError", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "SandboxCreateError"),
    ), f"{S}test_sandbox.py::test_create_error_has_its_published_import_path"),
    Row(165, "sandbox.providers.base", "SandboxExecResult", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "SandboxExecResult"),
    ), NOTHING_IN_PARTICULAR),
    Row(166, "sandbox.providers.docker", "DockerCreateConfig", (STRICT,),
        f"{S}test_command_lines.py::test_container_follows_spec_and_options"),
    Row(167, "sandbox.providers.docker", "DockerProvider", (provides,),
        f"{S}test_command_lines.py::test_container_runs_commands_and_copies_files"),
    Row(168, "sandbox.utils", "rewrite_image", (
        is_the(importlib.import_module("nemo_gym.sandbox"), "rewrite_image"),
    ), NOTHING_IN_PARTICULAR),
    Row(173, "global_config", "HF_TOKEN_KEY_NAME", (value("hf_token"),),
        "test_process_loads_its_configuration_lazily_and_once"),
    Row(174, "global_config", "GlobalConfigDictParser", (
        methods(
            parse="(self, global_config_dict_parser_config=None)",
            parse_no_environment="(self, initial_global_config_dict=None)",
            filter_for_server_instance_configs="(self, global_config_dict)",
            collect_missing_value_paths="(self, global_config_dict)",
            detect_and_report_almost_servers="(self, global_config_dict)",
            raise_on_no_server_instances="(self, global_config_dict)",
        ),
    ), "test_parser_reports_servers_and_missing_values"),
    Row(175, "benchmarks", "BenchmarkConfig", (kind_of(BaseModel),),
        f"{P}test_benchmarks.py::test_benchmark_matches_its_configuration"),
    Row(176, "global_config", "GlobalConfigDictParserConfig", (
        fields("dotenv_path=None initial_global_config_dict=None skip_load_from_cli=False "
               "skip_load_from_dotenv=False hide_secrets=False offline=False"),
    ), "test_parser_reports_servers_and_missing_values"),
]  # fmt: skip
