"""The training batch of one step of Agent Lightning: its server, its local controller and its adapter for verl.

`lightning_trainer.py ENGINE PORT < rows.json` needs a Python that has Agent Lightning and verl, and runs in a folder
with `gym_lightning.py`. AGENT_URL is the agent's address. The last line of the output has the batch's sequences.
"""

import json
import subprocess
import sys
import time

import httpx
import torch
from agentlightning.verl.agl_rollout_manager import AglRolloutManager
from agentlightning.verl.rollout_adapter import RolloutAdapter

MODEL, KEY = "policy", "key-of-the-server"
PATIENCE_S = 300.0


def wait_for(url, server):
    """Wait until a server answers. Raise an error if it has ended."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at and server.poll() is None:
        try:
            return httpx.get(url).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} does not answer")


def complete(url, engine, rows):
    """Return Agent Lightning's completed rollouts."""
    manager = AglRolloutManager(
        agl_base_url=url, agl_key=KEY, model=MODEL, step=5, rollout_timeout_seconds=PATIENCE_S,
        poll_interval_seconds=0.2, local_agent_class="gym_lightning:GymAgent", local_env_map={"ROW": "input.row"},
    )  # fmt: skip
    manager.register_model([f"{engine}/v1"])
    return manager.enqueue_and_wait_until_completed({"row": [json.dumps(row) for row in rows]}, is_train=True)


def report_of(rollouts):
    adapter = RolloutAdapter(
        max_prompt_length=2000, max_response_length=500, device=torch.device("cpu"), pad_token_id=0,
        trace_aggregator_level="trajectory",
    )  # fmt: skip
    batch, metrics = adapter.get_train_data_batch(rollouts)
    report = []
    for at, rollout_id in enumerate(batch.non_tensor_batch["rollout_id_list"]):
        tensors = {name: each[at] for name, each in batch.batch.items()}
        before = int(tensors["attention_mask"][:2000].sum())
        trained = tensors["response_mask"].nonzero().flatten()
        report.append(
            {
                "rollout": str(rollout_id),
                "tokens": tensors["input_ids"][tensors["attention_mask"].bool()].tolist(),
                "trained": (trained + before).tolist(),
                "log_probs": tensors["rollout_log_probs"][trained].tolist(),
                "reward": tensors["token_level_scores"].sum().item(),
            }
        )
    states = [(each.input["row"], str(each.rollout_state), each.rollout_id) for each in rollouts]
    return {"sequences": report, "states": states, "metrics": metrics}


def main() -> None:
    engine, port = sys.argv[1:]
    url = f"http://127.0.0.1:{port}"
    proxy = (f"default_proxy.model_name={MODEL}", "default_proxy.train.temperature=0.9")
    serve = [sys.executable, "-m", "agentlightning.server", "host=127.0.0.1", f"port={port}", f"key={KEY}", *proxy]
    control = [sys.executable, "-m", "agentlightning.controller", "runner_type=local", f"agl_server.url={url}",
               f"agl_server.key={KEY}", "local_runner.poll_interval=0.2"]  # fmt: skip
    with subprocess.Popen(serve, stdout=sys.stderr) as server:
        try:
            wait_for(f"{url}/healthz", server)
            with subprocess.Popen(control, stdout=sys.stderr) as controller:
                try:
                    rollouts = complete(url, engine, json.load(sys.stdin))
                finally:
                    controller.terminate()
        finally:
            server.terminate()
    sys.stdout.write(f"{json.dumps(report_of(rollouts))}\n")


if __name__ == "__main__":
    main()
