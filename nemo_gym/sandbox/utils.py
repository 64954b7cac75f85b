"""Re-exports for server folders written for release 0.7, which import these names from here."""

from nemo_gym.sandbox.images import rewrite_image
from nemo_gym.sandbox.threads import CPU_CAP_ENV_VARS, cpu_cap_env

__all__ = ["CPU_CAP_ENV_VARS", "cpu_cap_env", "rewrite_image"]
