"""The head server for a program that starts its servers itself."""

from __future__ import annotations

from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import Field

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.masking import masked
from nemo_gym.config.process import HeadSettings, ServerInstance
from nemo_gym.config.shared_run import SharedRun
from nemo_gym.process.head import Head
from nemo_gym.published.whole_config import run_of_config
from nemo_gym.servers.base import BaseServer


class HeadServer(BaseServer):
    """The head server for a program that starts its servers itself. `ng_run` does not use this class."""

    instances: list[ServerInstance] = Field(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        """Return the app. It publishes this process's configuration with secrets masked."""
        config = masked(OmegaConf.to_container(hooks().config()))
        shown = OmegaConf.to_yaml(OmegaConf.create(config))
        shared = SharedRun.of(run_of_config(hooks().config()))
        host, port = self.config.host, self.config.port
        return Head(
            HeadSettings(host=host, port=port, instances=self.instances, config_yaml=shown, shared=shared)
        ).app()
