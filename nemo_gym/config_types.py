"""Public import path of `nemo_gym.config`, `nemo_gym.schemas.rollout` and other modules; re-exports only."""

from omegaconf import OmegaConf

from nemo_gym.config.models import DatasetConfig
from nemo_gym.config.settings import (
    AgentServerRef,
    BaseRunServerConfig,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
    Domain,
    ModelServerRef,
    ResourcesServerRef,
    ServerRef,
)
from nemo_gym.context.rollout_id import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.data.hub_settings import DeleteFromGitLab as DeleteJsonlDatasetGitlabConfig
from nemo_gym.data.hub_settings import DownloadFromGitLab as DownloadJsonlDatasetGitlabConfig
from nemo_gym.data.hub_settings import DownloadFromHuggingFace as DownloadJsonlDatasetHuggingFaceConfig
from nemo_gym.data.hub_settings import MigrateToHuggingFace as BaseUploadJsonlDatasetHuggingFaceConfig
from nemo_gym.data.hub_settings import MigrateToHuggingFace as UploadJsonlDatasetHuggingFaceConfig
from nemo_gym.data.hub_settings import UploadToGitLab as UploadJsonlDatasetGitlabConfig
from nemo_gym.data.hub_settings import UploadToHuggingFace as UploadJsonlDatasetHuggingFaceMaybeDeleteConfig
from nemo_gym.errors import (
    AlmostServerError,
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    ConfigPathNotFoundError,
    InheritPathNotFoundError,
    MalformedConfigPathsError,
    NoServerInstancesError,
    ServerRefNotFoundError,
)
from nemo_gym.published.commands import BaseNeMoGymCLIConfig
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.settings_classes import BenchmarkDatasetConfig
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest

__all__ = [
    "ROLLOUT_PATH_PREFIX", "TOKEN_CAPTURE_PATH_SEGMENT", "AgentServerRef", "AggregateMetrics",
    "AggregateMetricsRequest", "AlmostServerError", "BaseNeMoGymCLIConfig", "BaseRunServerConfig",
    "BaseRunServerInstanceConfig", "BaseServerConfig", "BaseUploadJsonlDatasetHuggingFaceConfig",
    "BenchmarkDatasetConfig", "ConfigError", "ConfigInterpolationError", "ConfigMissingValuesError",
    "ConfigPathNotFoundError", "DatasetConfig", "DeleteJsonlDatasetGitlabConfig", "Domain",
    "DownloadJsonlDatasetGitlabConfig", "DownloadJsonlDatasetHuggingFaceConfig", "InheritPathNotFoundError",
    "MalformedConfigPathsError", "ModelServerRef", "NoServerInstancesError", "OmegaConf", "ResourcesServerRef",
    "ServerRef", "ServerRefNotFoundError", "UploadJsonlDatasetGitlabConfig", "UploadJsonlDatasetHuggingFaceConfig",
    "UploadJsonlDatasetHuggingFaceMaybeDeleteConfig",
]  # fmt: skip
