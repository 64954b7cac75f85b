"""`nemo_gym.secret_utils`: masking of secrets in a configuration."""

from __future__ import annotations

from nemo_gym.secret_utils import MASK, is_secret_key, mask_text, masked


def test_secrets_are_masked_by_key_and_shape():
    shown = masked({"policy_api_key": "abc", "max_tokens": 5, "nested": [{"hf_token": "t"}], "note": "sk-abcdef123"})
    assert shown == {"policy_api_key": MASK, "max_tokens": 5, "nested": [{"hf_token": MASK}], "note": MASK}


def test_secret_keys_differ_from_similar_words():
    assert [is_secret_key(name) for name in ("api_key", "wandb_api_key", "max_tokens", "answer_key")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_masked_text_keeps_everything_else():
    assert mask_text("calling with sk-abcdef123 now") == f"calling with {MASK} now"
