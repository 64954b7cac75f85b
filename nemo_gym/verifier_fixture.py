"""Public import path of `nemo_gym.published.fixtures`; re-exports only."""

from nemo_gym.published.fixtures import VerifierFixture, exercise_verifier_fixture
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on

__all__ = ["VerifierFixture", "exercise_verifier_fixture"]
