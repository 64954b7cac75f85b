"""Public import path of `nemo_gym.config.masking`; re-exports only."""

from nemo_gym.config.masking import MASK, is_secret_key, mask_text, masked

__all__ = ["MASK", "is_secret_key", "mask_text", "masked"]
