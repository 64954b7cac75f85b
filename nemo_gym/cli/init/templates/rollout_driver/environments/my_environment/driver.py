"""Drive rollouts from a program of your own, such as a trainer: seed, ask the model, verify, without an agent server.

python environments/my_environment/driver.py --output <rollouts.jsonl>
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from nemo_gym import BaseServerConfig, ServerClient, get_response_json, raise_for_status
from nemo_gym.errors import HeadServerNotFoundError
from nemo_gym.jsonl import dump_json, read_rows

EXAMPLES = Path(__file__).parent / "data" / "example.jsonl"
SERVER, MODEL = "my_environment", "policy_model"
AT_ONCE = 16


async def play(client: ServerClient, row: dict[str, Any]) -> dict[str, Any]:
    """Run one rollout and return the graded row."""
    seeded = await client.post(SERVER, "/seed_session", json=row)
    await raise_for_status(seeded)
    asked = await client.post(MODEL, "/v1/responses", json=row["responses_create_params"])
    await raise_for_status(asked)
    answered = {**row, "response": await get_response_json(asked)}
    # The cookies of the seeded session lead the call to the same state.
    graded = await client.post(SERVER, "/verify", json=answered, cookies=seeded.cookies)
    await raise_for_status(graded)
    return await get_response_json(graded)


async def drive(client: ServerClient, rows: list[dict[str, Any]], output: Path) -> list[float]:
    """Run all rows, write each rollout as soon as it is graded, and return the rewards."""
    gate, rewards = asyncio.Semaphore(AT_ONCE), []
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("xb") as file:

        async def write(row: dict[str, Any]) -> None:
            async with gate:
                graded = await play(client, row)
            file.write(dump_json(graded) + b"\n")
            rewards.append(graded["reward"])

        async with asyncio.TaskGroup() as group:
            for row in rows:
                group.create_task(write(row))
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--input", type=Path, default=EXAMPLES, help="the rows")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    parser.add_argument("--head-port", type=int, default=11000, help="the port that the run printed as head server")
    given = parser.parse_args()
    try:
        client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=given.head_port))
    except HeadServerNotFoundError as error:
        raise SystemExit(f"Error: {error}") from error
    if given.output.exists():
        raise SystemExit(f"Error: {given.output} exists already. Choose another name.")
    rewards = asyncio.run(drive(client, list(read_rows(given.input)), given.output))
    sys.stdout.write(f"{given.output}: {len(rewards)} rollouts, mean reward {sum(rewards) / len(rewards):.3f}\n")


if __name__ == "__main__":
    main()
