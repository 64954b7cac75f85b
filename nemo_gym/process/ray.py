"""The connection to Ray for servers whose own code uses Ray."""

from __future__ import annotations

from nemo_gym.config.published import maybe_get_global_config_dict
from nemo_gym.errors import LaunchError


def initialize_ray() -> None:
    """Connect this process once to the cluster at `ray_head_node_address`, or start Ray on this machine.

    Raise `LaunchError` if Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError("Ray is not installed here. Install it: pip install 'nemo-gym[ray]'") from error
    if not ray.is_initialized():
        config = maybe_get_global_config_dict()
        address = config.get("ray_head_node_address") if config is not None else None
        ray.init(address=address, ignore_reinit_error=True, include_dashboard=False)
