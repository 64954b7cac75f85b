"""Public import path of `nemo_gym.published.fixtures`; re-exports only."""

from nemo_gym.published.fixtures import VerifierFixture, exercise_verifier_fixture

__all__ = ["VerifierFixture", "exercise_verifier_fixture"]
