import json
from pathlib import Path
from typing import Any, Dict, Optional

from fastapi import FastAPI
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class PhoneBookResourcesServerConfig(BaseResourcesServerConfig):
    numbers_fpath: str = "data/numbers.json"


class LookUpRequest(BaseModel):
    name: str


class LookUpResponse(BaseModel):
    number: Optional[str] = None


class PhoneBookVerifyRequest(BaseVerifyRequest):
    expected_number: str


class PhoneBookResourcesServer(SimpleResourcesServer):
    config: PhoneBookResourcesServerConfig

    _numbers: Dict[str, str] = PrivateAttr(default_factory=dict)
    _lookups: int = PrivateAttr(default=0)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        path = Path(__file__).parent / self.config.numbers_fpath
        self._numbers = json.loads(path.read_text())
        self._by_number = {number: name for name, number in self._numbers.items()}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look_up")(self.look_up)
        return app

    async def look_up(self, body: LookUpRequest) -> LookUpResponse:
        self._lookups += 1
        return LookUpResponse(number=self._numbers.get(body.name))

    async def verify(self, body: PhoneBookVerifyRequest) -> BaseVerifyResponse:
        known = body.expected_number in self._by_number
        reward = 1.0 if known and body.expected_number in body.response.output_text else 0.0
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    PhoneBookResourcesServer.run_webserver()
