import asyncio
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, List, Optional

from pydantic import ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class WorkerThreadsResourcesServerConfig(BaseResourcesServerConfig):
    num_processes: int = 2
    timeout_s: float = 20.0


class WorkerThreadsVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    expected_stdout: str


class WorkerThreadsVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    stdout: Optional[str] = None
    error: Optional[str] = None
    most_at_once: int


def _extract_code(text: str) -> str:
    time.sleep(0.001)
    fence = "`" * 3
    return text.split(f"{fence}python")[-1].split(fence)[0]


class WorkerThreadsResourcesServer(SimpleResourcesServer):
    config: WorkerThreadsResourcesServerConfig

    _semaphore: asyncio.Semaphore = PrivateAttr(default=None)
    _executor: ThreadPoolExecutor = PrivateAttr(default=None)
    _running: List[int] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any) -> None:
        self._semaphore = asyncio.Semaphore(self.config.num_processes)
        self._executor = ThreadPoolExecutor(max_workers=2)
        self._most_at_once = 0
        super().model_post_init(context)

    async def verify(self, body: WorkerThreadsVerifyRequest) -> WorkerThreadsVerifyResponse:
        loop = asyncio.get_running_loop()
        code = await loop.run_in_executor(self._executor, _extract_code, body.response.output_text)
        stdout, error = None, None
        async with self._semaphore:
            self._running.append(1)
            self._most_at_once = max(self._most_at_once, len(self._running))
            try:
                stdout = await asyncio.wait_for(self._run(code), self.config.timeout_s)
            except (RuntimeError, asyncio.TimeoutError) as e:
                error = repr(e)
            finally:
                self._running.pop()
        reward = float(stdout is not None and stdout.strip() == body.expected_stdout)
        return WorkerThreadsVerifyResponse(
            **body.model_dump(), reward=reward, stdout=stdout, error=error, most_at_once=self._most_at_once
        )

    async def _run(self, code: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory) / "main.py"
            await asyncio.to_thread(script.write_text, code)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(script),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                stdout, stderr = await process.communicate()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
        if process.returncode != 0:
            raise RuntimeError(stderr.decode().strip().splitlines()[-1])
        return stdout.decode()


if __name__ == "__main__":
    WorkerThreadsResourcesServer.run_webserver()
