"""Write trajectories in ATIF, such as those of Harbor's trials, as rollouts, for `ng eval show` and `ng view`.

    python rollouts_of_atif.py jobs/my_job results/my_job.jsonl

The input is a file with one trajectory (`.json`) or one per line (`.jsonl`), or a folder of such files. Versions 1.5
to 1.8 of the format are read. The reward is `reward` in the trajectory's `final_metrics.extra`, or that of the file
`verifier/reward.txt` or `verifier/reward.json` of its trial. A trajectory without a reward goes to
`results/my_job_failures.jsonl`.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(5, 9))
TOKENS = {
    "prompt_token_ids": "prompt_token_ids", "completion_token_ids": "generation_token_ids",
    "logprobs": "generation_log_probs",
}  # fmt: skip


def trajectories_in(path: Path) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """Yield each trajectory with its file and line. Other files of a folder are skipped."""
    files = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    for file in files:
        text = file.read_text("utf-8")
        for line, each in enumerate(text.splitlines() if file.suffix == ".jsonl" else [text], start=1):
            try:
                read = json.loads(each)
            except json.JSONDecodeError as error:
                sys.exit(f"{file}:{line}: not valid JSON ({error}).")
            version = read.get("schema_version") if isinstance(read, dict) else None
            if version in VERSIONS:
                yield file, line, read
            elif not path.is_dir():
                sys.exit(f"{file}:{line}: schema_version is {version!r}. Expected one of {', '.join(VERSIONS)}.")


def rollout_of(trajectory: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return a trajectory as a result without its numbers of task and repeat. It may lack a reward."""
    steps, agent, final = trajectory["steps"], trajectory["agent"], trajectory.get("final_metrics") or {}
    first = next((at for at, step in enumerate(steps) if _is_said(step)), len(steps))
    asked, said = ([item for step in part for item in items_of(step)] for part in (steps[:first], steps[first:]))
    counts = {"input": final.get("total_prompt_tokens"), "output": final.get("total_completion_tokens")}
    usage = {f"{kind}_tokens": count or 0 for kind, count in counts.items()}
    usage |= {
        "total_tokens": sum(usage.values()), "output_tokens_details": {"reasoning_tokens": 0},
        "input_tokens_details": {"cached_tokens": final.get("total_cached_tokens") or 0},
    }  # fmt: skip
    tools = [{"type": "function", **each.get("function", each)} for each in agent.get("tool_definitions") or []]
    response = {
        "id": f"resp_{trajectory.get('session_id')}", "object": "response", "created_at": 0, "output": said,
        "model": agent.get("model_name") or "unknown", "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [], "usage": usage if any(count is not None for count in counts.values()) else None,
    }  # fmt: skip
    reward = number_of((final.get("extra") or {}).get("reward"), reward_in(file.parent), reward_in(file.parent.parent))
    missing = {"_ng_failure_class": "environment_failed", "_ng_failure_message": f"{file} has no reward"}
    return {
        "responses_create_params": {"input": asked, **({"tools": tools} if tools else {})}, "response": response,
        **({"reward": reward} if reward is not None else missing),
        "agent_ref": {"type": "responses_api_agents", "name": agent["name"]}, "trajectory": str(file),
    }  # fmt: skip


def _is_said(step: dict[str, Any]) -> bool:
    return step["source"] == "agent" and not step.get("is_copied_context")


def items_of(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a step as items of the Responses API. Tokens are in the last item of the agent's turn."""
    if step["source"] != "agent":
        yield {"type": "message", "role": step["source"], "content": _parts(step["message"], "input_text")}
        return
    items: list[dict[str, Any]] = []
    if thought := step.get("reasoning_content"):
        items.append({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": thought}]})
    calls = step.get("tool_calls") or []
    if step["message"] or not calls:
        content = [part | {"annotations": []} for part in _parts(step["message"], "output_text")]
        said = {"type": "message", "role": "assistant", "content": content}
        items.append(said | ({"id": "msg", "status": "completed"} if _is_said(step) else {}))
    items += [
        {"type": "function_call", "call_id": call["tool_call_id"], "name": call["function_name"],
         "arguments": _text(call["arguments"])}
        for call in calls
    ]  # fmt: skip
    metrics: dict[str, Any] = step.get("metrics") or {}
    items[-1] |= {ours: metrics[theirs] for theirs, ours in TOKENS.items() if metrics.get(theirs) is not None}
    yield from items
    for result in (step.get("observation") or {}).get("results", ()):
        content, call_id = result.get("content"), result.get("source_call_id")
        text = content if isinstance(content, str) else _text(_parts(content or [], "input_text"))
        if call_id is None:
            yield {"type": "message", "role": "user", "content": text}
        else:
            yield {"type": "function_call_output", "call_id": call_id, "output": text}


def _parts(content: str | list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        {"type": kind, "text": each["text"] if each["type"] == "text" else each["source"]["path"]} for each in parts
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def reward_in(trial: Path) -> object:
    """Return the reward that Harbor's verifier has written for a trial, or None if it has not."""
    with suppress(OSError, ValueError, AttributeError):
        return json.loads((trial / "verifier/reward.json").read_text("utf-8")).get("reward")
    with suppress(OSError, ValueError):
        return float((trial / "verifier/reward.txt").read_text("utf-8"))
    return None


def number_of(*values: object) -> float | None:
    """Return the first finite number, or None."""
    return next((float(each) for each in values if isinstance(each, int | float) and math.isfinite(each)), None)


def main(source: str, output: str) -> None:
    """Write a row for each trajectory. Repeats are those with the same input."""
    path, repeats = Path(output), Counter[int]()
    tasks: dict[str, int] = {}
    rows = []
    for file, line, read in trajectories_in(Path(source)):
        try:
            row = rollout_of(read, file)
        except (KeyError, TypeError, IndexError) as error:
            sys.exit(f"{file}:{line}: the trajectory is not valid ATIF: {error!r}.")
        task = tasks.setdefault(json.dumps(row["responses_create_params"]), len(tasks))
        rows.append(row | {"_ng_task_index": task, "_ng_rollout_index": repeats[task]})
        repeats[task] += 1
    if not rows:
        sys.exit(f"{source}: no trajectory found. Pass a file or folder with trajectories in ATIF.")
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, is_scored in ((path.name, True), (f"{path.stem}_failures.jsonl", False)):
        chosen = [row for row in rows if ("reward" in row) is is_scored]
        if chosen or is_scored:
            path.with_name(name).write_text("".join(json.dumps(row) + "\n" for row in chosen), "utf-8")
            sys.stdout.write(f"{name}: {len(chosen)} rollouts\n")


if __name__ == "__main__":
    if len(sys.argv) != len(("program", "source", "output")):
        sys.exit("usage: python rollouts_of_atif.py FILE_OR_FOLDER OUTPUT.jsonl")
    main(*sys.argv[1:])
