"""Public import path of `nemo_gym.contract.fixtures`; re-exports only."""

from nemo_gym.contract.fixtures import VerifierFixture, exercise_verifier_fixture

__all__ = ["VerifierFixture", "exercise_verifier_fixture"]
