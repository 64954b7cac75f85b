import asyncio

from nemo_gym.verifier_fixture import exercise_verifier_fixture
from resources_servers.verified_cases.app import VERIFIER_FIXTURE


def test_verifier_cases() -> None:
    asyncio.run(exercise_verifier_fixture(VERIFIER_FIXTURE))
