import re
from typing import Any, ClassVar, Dict, List, Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.reward_profile import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)


class GradedMathsResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class GradedMathsVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    expected_answer: str
    subject: str = "other"


class GradedMathsVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    extracted_answer: Optional[str] = None
    symbolic_accuracy: bool


class GradedMathsResourcesServer(SimpleResourcesServer):
    config: GradedMathsResourcesServerConfig

    async def verify(self, body: GradedMathsVerifyRequest) -> GradedMathsVerifyResponse:
        found = re.findall(r"\\boxed\{([^{}]*)\}", body.response.output_text)
        answer = found[-1] if found else None
        return GradedMathsVerifyResponse(
            **body.model_dump(),
            reward=1.0 if answer == body.expected_answer else 0.0,
            extracted_answer=answer,
            symbolic_accuracy=answer == body.expected_answer,
        )

    @staticmethod
    def _score_fn(row: Dict[str, Any]) -> Dict[str, float]:
        return {"accuracy": row["reward"], "symbolic_accuracy": float(row["symbolic_accuracy"])}

    def compute_metrics(self, tasks: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
        metrics, all_score_dicts, score_names, max_k = compute_pass_majority_metrics(
            tasks, score_fn=self._score_fn, answer_key="extracted_answer"
        )
        add_avg_sample_std_dev(metrics, all_score_dicts, score_names, max_k)
        metrics.update(
            compute_subset_metrics(tasks, subset_key="subject", score_fn=self._score_fn, answer_key="extracted_answer")
        )
        return metrics

    def get_key_metrics(self, agent_metrics: Dict[str, Any]) -> Dict[str, Any]:
        key: Dict[str, Any] = {}
        for name in ("mean/input_tokens", "mean/output_tokens"):
            if name in agent_metrics:
                key[name] = agent_metrics[name]
        key.update(highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["accuracy"]))
        key.update(highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer"]))
        key.update(highest_k_metrics(agent_metrics, "majority@{k}"))
        return key


if __name__ == "__main__":
    GradedMathsResourcesServer.run_webserver()
