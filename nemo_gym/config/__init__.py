"""Configuration from YAML and the command line as one frozen `RunConfig`.

The names below are imported on first access, so that a command can start the fork server before it imports a YAML
parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.config.explain import explain_params as explain_params
    from nemo_gym.config.explain import explain_validation as explain_validation
    from nemo_gym.config.explain import misspelt_params as misspelt_params
    from nemo_gym.config.explain import parse_settings as parse_settings
    from nemo_gym.config.explain import problems_by_key as problems_by_key
    from nemo_gym.config.loading import load as load
    from nemo_gym.config.masking import is_secret_key as is_secret_key
    from nemo_gym.config.masking import mask_text as mask_text
    from nemo_gym.config.masking import masked as masked
    from nemo_gym.config.masking import masked_yaml as masked_yaml
    from nemo_gym.config.masking import raw_yaml as raw_yaml
    from nemo_gym.config.models import DatasetConfig as DatasetConfig
    from nemo_gym.config.models import HeadConfig as HeadConfig
    from nemo_gym.config.models import Origin as Origin
    from nemo_gym.config.models import RunConfig as RunConfig
    from nemo_gym.config.models import ServerConfig as ServerConfig
    from nemo_gym.config.ports import bind as bind
    from nemo_gym.config.ports import share as share
    from nemo_gym.config.run_settings import PortRange as PortRange
    from nemo_gym.config.servers import NO_MODEL as NO_MODEL

_HOMES = {
    "explain": ("explain_params", "explain_validation", "misspelt_params", "parse_settings", "problems_by_key"),
    "loading": ("load",),
    "masking": ("is_secret_key", "mask_text", "masked", "masked_yaml", "raw_yaml"),
    "models": ("DatasetConfig", "HeadConfig", "Origin", "RunConfig", "ServerConfig"),
    "ports": ("bind", "share"),
    "run_settings": ("PortRange",),
    "servers": ("NO_MODEL",),
}
_PLACES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_PLACES)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _PLACES)
