"""Serve the model that a trainer trains with a real vLLM on the CPU, which `local_vllm_model` starts and watches.

vLLM and the trainer need different packages, so they are processes of two virtual environments. The weights go to vLLM
as a file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from nemo_gym.errors import LaunchError
from nemo_gym.global_config import get_global_config_dict

PYTHON = Path(__file__).absolute().parents[1] / ".venv-engine/bin/python"
"""The interpreter of `make engine`."""
TIMEOUT_S = 300.0
POLL_S = 0.5
ARGS = {
    # In bfloat16, the trainer and the engine would round differently.
    "dtype": "float32",
    "enforce-eager": True,
    "max-num-seqs": 64,
    "block-size": 32,
    "enable-auto-tool-choice": True,
    "tool-call-parser": "hermes",
    # The log-probabilities of the distribution that was sampled from.
    "logprobs-mode": "processed_logprobs",
}
ENV = {
    # It opens the routes that `push` calls. They need no key, so the engine must not listen beyond loopback.
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip


class VLLMEngine:
    """The engine of a run. Its weights are those of the last `push`."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, python: Path = PYTHON
    ) -> None:
        """Write the model and its tokenizer to `folder`, from which the engine loads them when the run starts it."""
        self._folder = folder
        self._python = python
        tokenizer.save_pretrained(folder)
        model.save_pretrained(folder)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run whose policy is this engine."""
        server = {
            "python": str(self._python),
            "served_model_name": "policy",
            "args": ARGS,
            "env": ENV,
            # A call of a rollout would wait for a restarted engine, but `push` does not.
            "max_restarts": 0,
            "return_token_id_information": True,
            # The calls of the tiny Llama are stop tokens, whose text vLLM omits by default.
            "extra_body": {"include_stop_str_in_output": True},
        }
        return {
            "config_paths": ["responses_api_models/local_vllm_model/configs/local_vllm_model.yaml"],
            "policy_model_name": str(self._folder),
            "policy_model": {"responses_api_models": {"local_vllm_model": server}},
        }

    def push(self, model: PreTrainedModel) -> None:
        """Replace the engine's weights while no rollout is running. Raise `LaunchError` if the engine does not answer.

        With a GPU, use vLLM's weight transfer over NCCL instead, which needs no file (`/update_weights`); TRL does so
        with `use_vllm`.
        """
        written = self._folder / "weights.new"
        save_file(model.state_dict(), written, {"format": "pt"})
        # vLLM may have mapped the old file into its memory, so do not write into it.
        written.replace(self._folder / "model.safetensors")
        self.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self._folder)}})
        # The keys and values of earlier prompts were computed with the old weights.
        if not self.ask("/reset_prefix_cache")["success"]:
            raise LaunchError(
                "vLLM did not reset its prefix cache, because requests are still running. Push weights only between "
                "two batches of rollouts."
            )

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the engine's reply to a POST request. Raise `LaunchError` with the reason if it fails."""
        server = _model_server()
        try:
            engine = httpx.get(f"{server}/get_inner_vllm_config", timeout=TIMEOUT_S, trust_env=False).json()
            url = engine["base_url"][0].removesuffix("/v1") + path
            headers = {"authorization": f"Bearer {engine['api_key']}"}
            reply = httpx.post(url, json=body, headers=headers, timeout=TIMEOUT_S, trust_env=False)
            return reply.raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            cause = _end_of_engine(server) or f"{path} failed: {str(error) or type(error).__name__}"
            raise LaunchError(f"vLLM can no longer be used: {cause}") from error


def _model_server() -> str:
    """Return the address of the server that has started the engine."""
    found = get_global_config_dict()["policy_model"]["responses_api_models"]["local_vllm_model"]
    return f"http://{found['host']}:{found['port']}"


def _end_of_engine(server: str) -> str | None:
    """Return why the engine has ended, or None if it has not."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            reply = httpx.get(f"{server}/ready_engine/0", params={"restarts": 0}, timeout=TIMEOUT_S, trust_env=False)
            if not reply.is_success:
                return str(reply.json()["detail"])
            if not reply.json()["has_ended"]:
                return None
            # The server still ends the processes that the engine has left.
            time.sleep(POLL_S)
    except (httpx.HTTPError, ValueError, LookupError):
        pass
    return None
