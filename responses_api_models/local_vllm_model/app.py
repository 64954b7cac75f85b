"""Serve a model with engines that this server starts itself: vLLM, SGLang, llama.cpp or another program."""

import asyncio
import secrets
from functools import cached_property
from pathlib import Path

from fastapi import FastAPI
from pydantic import Field, model_validator

from nemo_gym import DataError, starting_dir
from nemo_gym.jsonl import JsonObject
from responses_api_models.local_vllm_model.commands import MODULES, EngineName, command_of, environment_of
from responses_api_models.local_vllm_model.crashes import CRASH_PATIENCE_S, ModelOfEngines
from responses_api_models.local_vllm_model.engine import Engine, EngineSettings
from responses_api_models.vllm_model.app import VLLMModelConfig

OTHER_PROGRAM = "Install the engine, or set python to the interpreter that can import it, or set command."
BAND = ("port_range_low", 10001), ("port_range_high", 20000)


class LocalVLLMModelConfig(VLLMModelConfig):
    num_workers: int | None = 1
    """Must be 1, because each process would start its own engines."""
    base_url: list[str] = Field(default_factory=list)
    """Must not be set, because the server chooses the addresses of its engines."""
    api_key: str = Field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """The engines' API key. Default: a random key."""
    model: str
    """The name or the path of the model to load."""
    served_model_name: str | None = None
    """The name of the model in requests to the engine, if it differs from `model`."""
    engine: EngineName = "vllm"
    command: str | list[str] | None = None
    """A command that replaces the default command. Placeholders: `{model}`, `{host}`, `{port}` and `{replica}`."""
    python: Path | None = None
    """The Python interpreter that runs vLLM or SGLang, if the engine has a virtual environment of its own."""
    args: JsonObject = Field(default_factory=dict)
    """Options of the engine, such as `{max-model-len: 8192, enable-auto-tool-choice: true}`."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    replicas: int = Field(default=1, ge=1)
    """The number of engines. All turns of a rollout use the same engine."""
    gpus_per_replica: int | None = Field(default=None, ge=1)
    """The number of GPUs per engine, assigned in order. Default: each engine sees all GPUs."""
    engine_host: str = "127.0.0.1"
    """The address at which the engines listen."""
    health_path: str = "/health"
    """The path that returns status 200 once the model is loaded."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which an engine that has not loaded the model counts as failed."""
    hang_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds without an answer to `health_path` after which an engine is restarted."""
    stop_timeout_s: float = Field(default=10.0, ge=0)
    """Seconds to wait for an engine to stop before it is killed."""
    max_restarts: int = Field(default=3, ge=0)
    """Maximum number of restarts per engine. An engine that was never ready restarts only after a port conflict."""
    log_dir: Path = Path("results/engines")

    @model_validator(mode="after")
    def _runs_a_module(self) -> "LocalVLLMModelConfig":
        if self.python is not None and (self.command is not None or self.engine not in MODULES):
            raise ValueError(f"python is for the engines {' and '.join(MODULES)} without a command. Leave it out")
        return self

    @model_validator(mode="after")
    def _has_one_process(self) -> "LocalVLLMModelConfig":
        if (self.num_workers or self.workers or 1) > 1:
            raise ValueError(
                "num_workers must be 1, because each process would start its own engines. Set replicas instead"
            )
        if self.base_url:
            raise ValueError(
                "base_url must not be set, because this server starts its own engines. For an engine that is already "
                "running, use vllm_model"
            )
        return self


class LocalVLLMModel(ModelOfEngines):
    """A `vllm_model` server for engines that it starts and stops itself."""

    config: LocalVLLMModelConfig

    @cached_property
    def engines(self) -> list[Engine]:
        return [Engine(self._settings_of(replica)) for replica in range(self.config.replicas)]

    @cached_property
    def watching(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(engine.keep_up()) for engine in self.engines]

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/get_inner_vllm_config")(self.get_inner_vllm_config)
        app.get("/ready_engine/{replica}")(self.ready_engine)
        return app

    async def get_inner_vllm_config(self) -> JsonObject:
        """Return the engines' addresses, their key and the model's name."""
        urls = [engine.url for engine in self.engines]
        return {"base_url": urls, "api_key": self.config.api_key, "model": self._model}

    async def ready_engine(self, replica: int, restarts: int | None = None) -> JsonObject:
        """Wait until an engine is ready, and return its address. `local_vllm_model_proxy` calls this.

        `restarts` is the engine's number of restarts before the caller lost its connection. The reply says whether
        the engine has crashed since.
        """
        engine = self.engines[replica]
        has_ended = restarts is not None and await engine.has_ended(restarts, CRASH_PATIENCE_S)
        await engine.wait_until_ready()
        return {"url": engine.url, "restarts": engine.restarts, "has_ended": has_ended}

    async def startup(self) -> None:
        """Start the engines and wait until all are ready. Raise `DataError` if their files do not exist."""
        self._check_files()
        assert self.watching
        await asyncio.gather(*(engine.wait_until_ready() for engine in self.engines))

    async def aclose(self) -> None:
        if "watching" in self.__dict__:
            for task in self.watching:
                task.cancel()
            await asyncio.gather(*self.watching, return_exceptions=True)
        await super().aclose()

    def _check_files(self) -> None:
        config = self.config
        if self._python is not None and not self._python.is_file():
            raise DataError(
                f"{config.name}: python '{config.python}' not found. Name the interpreter that can import "
                f"{config.engine}."
            )
        is_path = config.model.startswith((".", "/")) and config.command is None
        if is_path and not (starting_dir() / config.model).exists():
            raise DataError(
                f"{config.name}: model '{config.model}' not found. Correct the path, or name a model of a hub."
            )

    @property
    def _python(self) -> Path | None:
        # Do not resolve links, because the interpreter of a virtual environment is a link to another one.
        return starting_dir() / self.config.python.expanduser() if self.config.python is not None else None

    @property
    def _model(self) -> str:
        return self.config.served_model_name or self.config.model

    def _settings_of(self, replica: int) -> EngineSettings:
        config = self.config
        shown = "" if config.replicas == 1 else f" (replica {replica + 1} of {config.replicas})"
        low, high = (int(self.server_client.global_config_dict.get(key) or default) for key, default in BAND)
        return EngineSettings(
            name=f"{config.name}: the engine{shown}" if config.command else f"{config.name}: {config.engine}{shown}",
            command=lambda place: command_of(
                config.engine,
                place,
                model=config.model,
                served_name=config.served_model_name,
                args=config.args,
                template=config.command,
                python=self._python,
                folder=starting_dir(),
            ),
            environment=environment_of(
                config.env,
                api_key=config.api_key,
                replica=replica,
                gpus=config.gpus_per_replica,
                python=self._python,
            ),
            folder=starting_dir(),
            log=starting_dir() / config.log_dir / f"{config.name}_{replica}.log",
            secret=config.api_key,
            host=config.engine_host,
            ports=range(low, high + 1),
            replica=replica,
            health_path=config.health_path,
            start_timeout_s=config.start_timeout_s,
            stop_timeout_s=config.stop_timeout_s,
            hang_timeout_s=config.hang_timeout_s,
            max_restarts=config.max_restarts,
            progress=lambda line: self.note_progress(f"{line}{shown}"),
            advice="Correct command." if config.command else OTHER_PROGRAM,
        )


if __name__ == "__main__":
    LocalVLLMModel.run_webserver()
