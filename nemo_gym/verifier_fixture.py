"""Published name of the verifiers' cases in `nemo_gym.contract.fixtures`."""

from nemo_gym.contract.fixtures import VerifierFixture, exercise_verifier_fixture

__all__ = ["VerifierFixture", "exercise_verifier_fixture"]
