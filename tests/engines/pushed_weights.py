"""Push weights into a vLLM that has cached a prompt, then kill it: `python pushed_weights.py FOLDER ENGINE_PYTHON`.

It writes JSON: for each step, the largest difference between the engine's log-probabilities and those of the first
model and of the second one; then the error of a push into the killed engine.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psutil
import torch

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "examples"))

from counter_servers import counter_servers  # noqa: E402
from tiny_llama import make_model, make_tokenizer  # noqa: E402
from vllm_engine import VLLMEngine  # noqa: E402

from nemo_gym.errors import LaunchError  # noqa: E402


def next_token(engine, prompt):
    """Return the engine's log-probability of the likeliest tokens after the prompt."""
    asked = {"model": "policy", "prompt": prompt, "max_tokens": 1, "temperature": 1.0, "logprobs": 20, "seed": 0}
    (choice,) = engine.ask("/v1/completions", {**asked, "return_tokens_as_token_ids": True})["choices"]
    (found,) = choice["logprobs"]["top_logprobs"]
    return {int(name.removeprefix("token_id:")): value for name, value in found.items()}


@torch.no_grad()
def difference(model, prompt, found):
    own = torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1], dim=-1)
    return max(abs(value - own[token].item()) for token, value in found.items())


def main(folder, python):
    tokenizer = make_tokenizer()
    first, second = (make_model(tokenizer, seed) for seed in (0, 1))
    # Three blocks of the engine's cache, and a part of a fourth one.
    prompt = [number % len(tokenizer) for number in range(3, 103)]
    engine = VLLMEngine(first, tokenizer, folder, python)
    steps = []
    with counter_servers(engine.settings):

        def look():
            found = next_token(engine, prompt)
            steps.append([difference(model, prompt, found) for model in (first, second)])

        look()
        look()
        engine.push(second)
        look()
        engine.push(first)
        look()
        (process,) = [
            each
            for each in psutil.Process().children(recursive=True)
            if "vllm.entrypoints.openai.api_server" in each.cmdline() and "keeper.py" not in " ".join(each.cmdline())
        ]
        process.send_signal(signal.SIGKILL)
        try:
            engine.push(second)
            error = ""
        except LaunchError as refused:
            error = str(refused)
    sys.stdout.write(json.dumps({"steps": steps, "error": error}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
