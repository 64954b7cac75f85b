from typing import List, Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class ExactWordResourcesServerConfig(BaseResourcesServerConfig):
    ignore_case: bool = True


class ExactWordRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    expected_word: str
    also_right: Optional[List[str]] = None


class ExactWordVerifyRequest(ExactWordRunRequest, BaseVerifyRequest):
    pass


class ExactWordVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    extracted_word: Optional[str] = None


class ExactWordResourcesServer(SimpleResourcesServer):
    config: ExactWordResourcesServerConfig

    async def verify(self, body: ExactWordVerifyRequest) -> ExactWordVerifyResponse:
        word = self._extract_word(body)
        right = [self._normalize(each) for each in [body.expected_word, *(body.also_right or [])]]
        reward = 1.0 if word is not None and self._normalize(word) in right else 0.0
        payload = body.model_dump()
        payload.pop("extracted_word", None)
        return ExactWordVerifyResponse(**payload, reward=reward, extracted_word=word)

    def _normalize(self, word: str) -> str:
        return word.strip().lower() if self.config.ignore_case else word.strip()

    @staticmethod
    def _extract_word(body: BaseVerifyRequest) -> Optional[str]:
        texts: List[str] = []
        for output in body.response.output:
            if getattr(output, "type", None) != "message" or getattr(output, "role", None) != "assistant":
                continue
            content = getattr(output, "content", None)
            if isinstance(content, list):
                texts.extend(part.text for part in content if getattr(part, "type", None) == "output_text")
            elif isinstance(content, str):
                texts.append(content)
        words = " ".join(texts).rstrip(".").split()
        return words[-1] if words else None


if __name__ == "__main__":
    ExactWordResourcesServer.run_webserver()
