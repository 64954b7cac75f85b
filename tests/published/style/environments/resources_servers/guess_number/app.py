import random
import re
from typing import Any, Optional

from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.gymnasium import GymnasiumServer


class GuessNumberResourcesServerConfig(BaseResourcesServerConfig):
    highest: int = 20
    max_guesses: int = 5


class GuessNumberServer(GymnasiumServer):
    config: GuessNumberResourcesServerConfig

    _secrets: dict[str, int] = PrivateAttr(default_factory=dict)
    _guesses: dict[str, int] = PrivateAttr(default_factory=dict)

    async def reset(self, metadata: dict[str, Any], session_id: Optional[str] = None) -> tuple[Optional[str], dict]:
        secret = metadata.get("secret")
        if secret is None:
            secret = random.Random(metadata["seed"]).randint(1, self.config.highest)
        self._secrets[session_id] = secret
        self._guesses[session_id] = 0
        return f"Guess a number from 1 to {self.config.highest}.", {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: Optional[str] = None
    ) -> tuple[Optional[str], float, bool, bool, dict]:
        secret = self._secrets[session_id]
        self._guesses[session_id] += 1
        found = re.findall(r"\d+", action.output_text)
        guess = int(found[-1]) if found else None
        if guess == secret:
            return None, 1.0, True, False, {"guesses": self._guesses[session_id]}
        if self._guesses[session_id] >= self.config.max_guesses:
            return None, 0.0, False, True, {}
        hint = "Say a number." if guess is None else "Higher." if guess < secret else "Lower."
        return hint, 0.0, False, False, {}


if __name__ == "__main__":
    GuessNumberServer.run_webserver()
