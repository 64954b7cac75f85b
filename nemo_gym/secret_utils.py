"""Published name of what `nemo_gym.config.masking` hides."""

from nemo_gym.config.masking import MASK, is_secret_key, mask_text, masked

__all__ = ["MASK", "is_secret_key", "mask_text", "masked"]
