"""`nemo_gym.secret_utils`: what may be shown of a configuration."""

from __future__ import annotations

from nemo_gym.secret_utils import MASK, is_secret_key, mask_text, masked


def test_secrets_are_hidden_by_the_name_of_their_key_and_by_their_look():
    shown = masked({"policy_api_key": "abc", "max_tokens": 5, "nested": [{"hf_token": "t"}], "note": "sk-abcdef123"})
    assert shown == {"policy_api_key": MASK, "max_tokens": 5, "nested": [{"hf_token": MASK}], "note": MASK}


def test_a_key_is_told_from_a_word_that_sounds_like_one():
    assert [is_secret_key(name) for name in ("api_key", "wandb_api_key", "max_tokens", "answer_key")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_text_keeps_everything_else():
    assert mask_text("calling with sk-abcdef123 now") == f"calling with {MASK} now"
