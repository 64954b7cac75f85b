from pathlib import Path
from unittest.mock import MagicMock, patch

import yaml
from omegaconf import OmegaConf
from server import PackagedConfig, PackagedServer, PackagedVerifyRequest

from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient


class TestPackaged:
    def _server(self, **kwargs):
        config = PackagedConfig(
            host="0.0.0.0", port=8080, entrypoint="", name="packaged", answers={"a": ["B"]}, **kwargs
        )
        return PackagedServer(config=config, server_client=MagicMock(spec=ServerClient))

    async def test_verify(self):
        message = NeMoGymResponseOutputMessage(
            id="i", content=[NeMoGymResponseOutputText(annotations=[], text=" b", type="output_text")]
        )
        body = PackagedVerifyRequest.model_construct(
            responses_create_params=NeMoGymResponseCreateParamsNonStreaming.model_construct(input="x"),
            response=NeMoGymResponse.model_construct(output=[message]),
            id="a",
        )
        known = OmegaConf.create({"packaged": {"resources_servers": {"x": {"answers": {"a": ["B", "C"]}}}}})
        server = self._server(case_sensitive=False)
        with patch("server.get_global_config_dict", return_value=known):
            with patch("server.PackagedVerifyResponse") as made:
                await server.verify(body)
        assert made.call_args.kwargs["reward"] is True
        assert made.call_args.kwargs["from_global"] == ["B", "C"]

    def test_metrics(self):
        tasks = [[{"reward": 1.0, "answer": "a"}, {"reward": 0.0, "answer": "b"}]]
        metrics = self._server().compute_metrics(tasks)
        assert self._server().get_key_metrics(metrics)["pass@2/accuracy"] == 100.0

    def test_config_files(self):
        folder = Path(__file__).parent.parent / "configs"
        assert {p.stem for p in folder.glob("*.yaml")} == {"base", "packaged_env"}
        assert "config_paths" in yaml.safe_load((folder / "packaged_env.yaml").read_text())
