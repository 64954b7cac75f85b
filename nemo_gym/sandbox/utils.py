"""Re-exports for server folders of the published NeMo Gym, which import these names from here."""

from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.threads import CPU_CAP_ENV_VARS, cpu_cap_env

__all__ = ["CPU_CAP_ENV_VARS", "cpu_cap_env", "rewrite_image"]
