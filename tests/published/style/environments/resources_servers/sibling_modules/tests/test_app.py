from pathlib import Path
from unittest.mock import MagicMock

from nemo_gym.server_utils import ServerClient
from resources_servers.sibling_modules.app import (
    SiblingModulesResourcesServer,
    SiblingModulesResourcesServerConfig,
)
from resources_servers.sibling_modules.grader import grade

WORDS = str(Path(__file__).parents[1] / "data" / "words.txt")


class TestApp:
    def test_sanity(self) -> None:
        config = SiblingModulesResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
        SiblingModulesResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))

    def test_grade(self) -> None:
        assert grade("The cat sat", WORDS).reward == 1.0
        assert grade("The dog sat", WORDS).unknown == ["dog"]
