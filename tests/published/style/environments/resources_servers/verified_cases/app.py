from pathlib import Path
from unittest.mock import MagicMock

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import ServerClient
from nemo_gym.verifier_fixture import VerifierFixture


class VerifiedCasesResourcesServerConfig(BaseResourcesServerConfig):
    pass


class VerifiedCasesVerifyRequest(BaseVerifyRequest):
    expected_answer: str


class VerifiedCasesVerifyResponse(BaseVerifyResponse):
    expected_answer: str


class VerifiedCasesResourcesServer(SimpleResourcesServer):
    config: VerifiedCasesResourcesServerConfig

    async def verify(self, body: VerifiedCasesVerifyRequest) -> VerifiedCasesVerifyResponse:
        reward = float(body.response.output_text.strip() == body.expected_answer.strip())
        return VerifiedCasesVerifyResponse(**body.model_dump(), reward=reward)


def _server_for_cases() -> VerifiedCasesResourcesServer:
    config = VerifiedCasesResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="app.py", name="verified_cases")
    return VerifiedCasesResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=_server_for_cases,
    request_model=VerifiedCasesVerifyRequest,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    VerifiedCasesResourcesServer.run_webserver()
