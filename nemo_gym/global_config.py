"""Public import path of `nemo_gym.published.global_config` and the row keys of a rollout; re-exports only."""

from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.environment import CONFIG_DICT_ENV_VAR as NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME
from nemo_gym.config.view import CACHE_DIR_KEY_NAME, DISALLOWED_PORTS_KEY_NAME, HF_TOKEN_KEY_NAME, RESULTS_DIR_KEY_NAME
from nemo_gym.config.view import CONFIG_PATH_ENV_VAR as NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME
from nemo_gym.published.global_config import (
    AGENT_REF_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
    TOKEN_ID_CAPTURE_BLOCK,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    find_open_port,
    get_first_server_config_dict,
    get_global_config_dict,
    get_hf_token,
    maybe_get_global_config_dict,
)
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.observability import OBSERVABILITY_ENABLED_KEY_NAME
from nemo_gym.schemas.row import ATTEMPT_INDEX_KEY as ATTEMPT_INDEX_KEY_NAME
from nemo_gym.schemas.row import ROLLOUT_ID_KEY as ROLLOUT_ID_KEY_NAME
from nemo_gym.schemas.row import ROLLOUT_INDEX_KEY as ROLLOUT_INDEX_KEY_NAME
from nemo_gym.schemas.row import TASK_INDEX_KEY as TASK_INDEX_KEY_NAME

__all__ = [
    "AGENT_REF_KEY_NAME", "ATTEMPT_INDEX_KEY_NAME", "CACHE_DIR_KEY_NAME", "DISALLOWED_PORTS_KEY_NAME",
    "HF_TOKEN_KEY_NAME", "NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME", "NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME",
    "OBSERVABILITY_ENABLED_KEY_NAME", "RESULTS_DIR_KEY_NAME", "ROLLOUT_ID_KEY_NAME", "ROLLOUT_INDEX_KEY_NAME",
    "SKILLS_REF_KEY_NAME", "TASK_INDEX_KEY_NAME", "TASK_SOURCE_KEY_NAME", "TOKEN_ID_CAPTURE_BLOCK", "DictConfig",
    "GlobalConfigDictParser", "GlobalConfigDictParserConfig", "OmegaConf", "find_open_port",
    "get_first_server_config_dict", "get_global_config_dict", "get_hf_token", "maybe_get_global_config_dict",
]  # fmt: skip
