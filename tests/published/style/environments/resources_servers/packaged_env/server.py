from typing import Any, Dict, List

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import get_first_server_config_dict, get_global_config_dict
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics


class PackagedConfig(BaseResourcesServerConfig):
    answers: Dict[str, List[str]]
    case_sensitive: bool = True


class PackagedRunRequest(BaseRunRequest):
    id: str


class PackagedVerifyRequest(PackagedRunRequest, BaseVerifyRequest):
    pass


class PackagedVerifyResponse(BaseVerifyResponse):
    id: str
    answer: str
    from_global: List[str]


class PackagedServer(SimpleResourcesServer):
    config: PackagedConfig

    async def verify(self, body: PackagedVerifyRequest) -> PackagedVerifyResponse:
        answer = body.response.output_text.strip()
        wanted = self.config.answers[body.id]
        if not self.config.case_sensitive:
            answer, wanted = answer.lower(), [each.lower() for each in wanted]
        own = get_first_server_config_dict(get_global_config_dict(), self.config.name)
        return PackagedVerifyResponse(
            **body.model_dump(), reward=answer in wanted, answer=answer, from_global=list(own["answers"][body.id])
        )

    def compute_metrics(self, tasks: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
        return compute_pass_majority_metrics(tasks, score_fn=lambda r: {"accuracy": r["reward"]}, answer_key="answer")[
            0
        ]

    def get_key_metrics(self, agent_metrics: Dict[str, Any]) -> Dict[str, Any]:
        return highest_k_metrics(agent_metrics, "pass@{k}", score_names=["accuracy"])


if __name__ == "__main__":
    PackagedServer.run_webserver()
