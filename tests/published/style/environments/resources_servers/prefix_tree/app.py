from typing import Any, Dict, Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class Tree:
    """A plain class without pydantic."""

    def __init__(self, words) -> None:
        self.root: Dict[str, Any] = {}
        for word in words:
            node = self.root
            for letter in word:
                node = node.setdefault(letter, {})

    def holds(self, prefix: str) -> bool:
        node: Optional[Dict[str, Any]] = self.root
        for letter in prefix:
            node = (node or {}).get(letter)
        return node is not None


class PrefixTreeResourcesServerConfig(BaseResourcesServerConfig):
    words: list[str]


class PrefixTreeResourcesServer(SimpleResourcesServer):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: PrefixTreeResourcesServerConfig
    tree: Optional[Tree] = None
    threshold: int = 2

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tree = Tree(self.config.words)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        text = body.response.output_text.strip()
        reward = float(len(text) >= self.threshold and self.tree.holds(text))
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    PrefixTreeResourcesServer.run_webserver()
