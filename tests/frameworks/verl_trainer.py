"""One step of verl's trainers with its own Ray actors: agent loops, the storage of samples, advantages, metrics.

`verl_trainer.py ENGINE < rows.json` needs a Python that has verl, and runs in a folder with the modules of an agent
loop and its `gym_agent_loop.yaml`. The rows are those of `v1` and of `v0`. For each trainer, the last line of the
output has the samples that it stored and the metrics of the step. Parts that need a GPU are left out: an engine is
expected at the address ENGINE, and no weights are updated.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import ray
import torch
import transfer_queue
import verl
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopManager
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, PPOTrainerSync
from verl.utils import tensordict_utils
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.router import get_router_handle

MODEL = Path("model")
STEP, GROUP_SIZE = 5, 2
SETTINGS = (
    f"actor_rollout_ref.model.path={MODEL}", "actor_rollout_ref.rollout.name=vllm", "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=gym_agent_loop.yaml",
    "actor_rollout_ref.rollout.agent.num_workers=1", f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
    "actor_rollout_ref.rollout.temperature=0.9", "actor_rollout_ref.rollout.top_p=0.95",
    "data.max_prompt_length=2000", "data.max_response_length=400", "actor_rollout_ref.actor.ppo_mini_batch_size=1",
    # The log-probabilities of the rollout replace those that the actor would compute.
    "algorithm.rollout_correction.bypass_mode=true",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)  # fmt: skip


def save_model() -> None:
    """Save a tokenizer and the configuration of a tiny model, which workers load."""
    words = {"<pad>": 0, "<start>": 1, "<end>": 2}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", eos_token="<end>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(MODEL)
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 3}
    LlamaConfig(architectures=["LlamaForCausalLM"], **tiny).save_pretrained(MODEL)


def columns_of(rows):
    """Return the columns that verl's dataset makes of the samples."""
    count = len(rows)
    columns = {
        "raw_prompt": [row["responses_create_params"]["input"] for row in rows],
        "extra_info": [{"index": at, "row": json.dumps(row)} for at, row in enumerate(rows)],
        "index": list(range(count)),
        "uid": [f"uid{at}" for at in range(count)],
        "agent_name": ["nemo_gym"] * count,
        "data_source": ["counter"] * count,
        "reward_model": [{"style": "rule", "ground_truth": ""}] * count,
    }
    for name, values in columns.items():
        columns[name] = np.empty(count, dtype=object)
        columns[name][:] = values
    return columns


def v1_step(config, client, columns):
    """Run the step of the default trainer, whose workers put samples into its queue."""
    transfer_queue.init(config.transfer_queue)
    trainer = PPOTrainerSync(config)
    trainer.global_steps = STEP
    trainer.tokenizer = SimpleNamespace(pad_token_id=0, eos_token_id=2)
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    trainer.agent_loop_manager = AgentLoopManagerTQ.create(config=config, llm_client=client)
    batch = tensordict_utils.get_tensordict(columns)
    tensordict_utils.assign_non_tensor_data(batch, "global_steps", STEP)
    trainer._submit_batch_to_rollout(batch)
    found, metrics = trainer.replay_buffer.sample(STEP, "train", len(batch))
    keys, tags = list(found.keys), list(found.tags)
    found = trainer._balance_batch(found, metrics=metrics)
    found = trainer._compute_old_log_prob(found, metrics)
    found = trainer._compute_advantage(found, metrics)
    trainer._compute_metrics(found, metrics, {"gen": 1.0, "step": 1.0}, global_steps=STEP, epoch=0)
    names = ["responses", "response_mask", "rm_scores", "rollout_log_probs", "advantages"]
    data = transfer_queue.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    samples = {key: {name: data[name][at].tolist() for name in names} for at, key in enumerate(keys)}
    return {"samples": samples, "tags": dict(zip(keys, tags, strict=True)), "metrics": metrics}


def v0_step(config, client, columns):
    """Run the step of the older trainer, whose workers return a padded batch."""
    manager = AgentLoopManager.create(config=config, llm_client=client)
    batch = DataProto.from_dict(non_tensors=columns, meta_info={"global_steps": STEP})
    batch = manager.generate_sequences(batch.repeat(GROUP_SIZE, interleave=True))
    batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    batch.meta_info["global_token_num"] = torch.sum(batch.batch["attention_mask"], dim=-1).tolist()
    batch = compute_advantage(batch, "grpo", num_repeat=GROUP_SIZE, config=config.algorithm)
    names = ["responses", "response_mask", "rm_scores", "rollout_log_probs", "advantages"]
    samples = {
        f"{uid}_{at % GROUP_SIZE}_0": {name: batch.batch[name][at].tolist() for name in names}
        for at, uid in enumerate(batch.non_tensor_batch["uid"])
    }
    return {"samples": samples, "metrics": compute_data_metrics(batch, use_critic=False)}


def main() -> None:
    (engine,) = sys.argv[1:]
    rows = json.load(sys.stdin)
    save_model()
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = compose("ppo_trainer", overrides=list(SETTINGS))
    # By default, Ray chooses an address of this machine, and tests of containers and clusters change its networks.
    ray.init(num_cpus=8, include_dashboard=False, _node_ip_address="127.0.0.1")
    balancer = get_router_handle({engine: None})
    client = LLMServerClient(config, balancer)
    steps = {"v1": v1_step, "v0": v0_step}
    results = {name: steps[name](config, client, columns_of(rows[name])) for name in steps}
    # A server that is not released would get no further rollouts.
    results["in_flight"] = ray.get(balancer.get_total_inflight.remote())
    sys.stdout.write(f"{json.dumps(results, default=lambda number: number.item())}\n")


if __name__ == "__main__":
    main()
