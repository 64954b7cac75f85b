"""Collect rollouts, export them, and train on the files with TRL's SFT and DPO: `python examples/sft_then_dpo.py`.

The policy is a tiny Llama with random weights. It brings the counter to its target in a few of its rollouts.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from counter_servers import AGENT, counter_servers, endpoint, rows
from datasets import Dataset, load_dataset
from policy_server import PolicyServer
from tiny_llama import make_model, make_tokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from nemo_gym.jsonl import write_rows

REPEATS = 128
EXPORTS = {
    "messages": ["--min-reward", "1"],
    "prompt_completion": ["--min-reward", "1"],
    "preference": ["--pairs", "8"],
}
"""The formats, each with its filters."""


def ng(command: str, *words: str | Path) -> None:
    """Run one of our commands, as in a shell."""
    subprocess.run([Path(sys.executable).with_name(command), *words], check=True)


def collect(model: Any, tokenizer: Any, folder: Path) -> Path:
    """Return the file with many rollouts of each task."""
    tasks, rollouts = folder / "tasks.jsonl", folder / "rollouts.jsonl"
    write_rows(tasks, rows())
    with PolicyServer(model, tokenizer) as policy, counter_servers(endpoint(policy.url)) as head:
        ng(
            "ng_collect_rollouts", "--head_server.port", head.rpartition(":")[2], "--agent", AGENT,
            "--input", tasks, "--output", rollouts, "--num-repeats", str(REPEATS),
            "--temperature", "1", "--max-output-tokens", "8",
        )  # fmt: skip
    return rollouts


def export(rollouts: Path, form: str) -> Dataset:
    """Export the rollouts in one format, and load the file."""
    path = rollouts.with_name(f"{form}.jsonl")
    ng("ng", "dataset", "export", "--input", rollouts, "--output", path, "--format", form, *EXPORTS[form])
    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))


def settings(folder: Path, steps: int, seed: int) -> dict[str, Any]:
    """Return the settings that SFT and DPO share. Each step takes all examples, so that losses can be compared."""
    return {
        "output_dir": str(folder), "max_steps": steps, "seed": seed, "per_device_train_batch_size": 256,
        "learning_rate": 1e-3, "lr_scheduler_type": "constant", "logging_steps": 1, "report_to": "none",
        "save_strategy": "no", "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True,
    }  # fmt: skip


def losses(trainer: Any) -> list[float]:
    """Train, and return the loss of each step."""
    trainer.train()
    return [each["loss"] for each in trainer.state.log_history if "loss" in each]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, given.seed)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = settings(folder, given.steps, given.seed)
        rollouts = collect(model, tokenizer, folder)
        for form in ("messages", "prompt_completion"):
            data = export(rollouts, form)
            found[form] = losses(
                SFTTrainer(model=model, args=SFTConfig(**shared), train_dataset=data, processing_class=tokenizer)
            )
        data = export(rollouts, "preference")
        found["preference"] = losses(
            DPOTrainer(
                model=model,
                ref_model=copy.deepcopy(model),
                args=DPOConfig(**shared),
                train_dataset=data,
                processing_class=tokenizer,
            )
        )
    for form, values in found.items():
        print(f"loss on {form}: {', '.join(f'{value:.3f}' for value in values)}")
    return 0 if all(values[-1] < values[0] for values in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
