"""Measure the later tool calls of a long rollout: CPU per rollout by its number of steps, and CPU per step.

    python -m bench steps [--steps 1 2 5 10 20 30 50] [--in-flight 64] [--runs 1] [settings …]

Each step is one answer of a mock endpoint and one tool call that returns 2 KB; the conversation grows with each step.
The CPU of a step is the difference between two numbers of steps, divided by the steps between them. A straight line
fitted to all of them gives steps 1 and 30. Settings such as `+key=value` are passed to `ng_run`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.cost import Case, Measured, measure, middle_of, shown
from bench.job import Environment

RESULT_BYTES = 2000
WARM_UP_STEPS = 2000
LATE_STEP = 30
ALLOWED_RATIO = 1.5

APP = f'''
"""A tool with a long result."""

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer, tool

REPORT = ("It is cold and windy, and later it rains. " * 50)[:{RESULT_BYTES}]


class Weather(SimpleResourcesServer):
    @tool
    async def get_weather(self, city: str) -> str:
        """Return the weather in a city, at length."""
        return REPORT

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.tool_calls))
'''
CONFIG = {
    "long_weather": {"resources_servers": {"long_weather": {"entrypoint": "app.py"}}},
    "long_weather_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "long_weather"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
}


class StepCost(NamedTuple):
    """The CPU of step `k` of a rollout: `first_ms + growth_ms * (k - 1)`, in milliseconds."""

    first_ms: float
    growth_ms: float

    def of(self, step: int) -> float:
        return self.first_ms + self.growth_ms * (step - 1)


def write_environment(folder: Path) -> Environment:
    """Write the environment into the working folder of the commands."""
    server = folder / "resources_servers/long_weather"
    server.mkdir(parents=True)
    (server / "app.py").write_text(APP)
    (folder / "long_weather.yaml").write_text(json.dumps(CONFIG))
    return Environment("long_weather.yaml", "long_weather_agent", folder)


def fitted(cpu_ms: dict[int, float]) -> StepCost:
    """Fit a fixed cost plus a cost per step that grows linearly, by least squares of the relative errors.

    Relative errors, because the noise grows with the measured value.
    """
    # cpu(n) = fixed + first * n + growth * n(n-1)/2, each equation divided by cpu(n).
    rows = [[1 / ms, steps / ms, steps * (steps - 1) / 2 / ms, 1.0] for steps, ms in cpu_ms.items()]
    normal = [[sum(row[i] * row[j] for row in rows) for j in range(4)] for i in range(3)]
    for pivot in range(3):
        normal[pivot] = [value / normal[pivot][pivot] for value in normal[pivot]]
        for other in {0, 1, 2} - {pivot}:
            factor = normal[other][pivot]
            normal[other] = [value - factor * base for value, base in zip(normal[other], normal[pivot], strict=True)]
    return StepCost(normal[1][3], normal[2][3])


def print_rows(measured: dict[int, Measured]) -> None:
    """Print the table."""
    print(f"{'steps':>5}{'rollouts/s':>12}{'CPU ms':>9}{'a step since':>14}{'row, KB':>9}{'others':>8}  by role, ms")
    before: int | None = None
    for steps, run in measured.items():
        since = ""
        if before is not None:
            since = f"{(run.cpu_ms_in_all - measured[before].cpu_ms_in_all) / (steps - before):.2f} ms"
        print(
            f"{steps:>5}{run.rollouts_per_s:>12.1f}{run.cpu_ms_in_all:>9.2f}{since:>14}{run.row_bytes / 1000:>9.1f}"
            f"{run.others_share:>8.0%}  {shown(run.cpu_ms, 2)}"
        )
        before = steps


def main(words: Sequence[str]) -> int:
    """Measure each number of steps and compare late steps with the first one."""
    parser = argparse.ArgumentParser(
        prog="python -m bench steps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[1, 2, 5, 10, 20, 30, 50], help="three numbers or more"
    )
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=0, help="rollouts per case; by default enough for 5 s or more")
    parser.add_argument("--runs", type=int, default=1)
    settings = [word for word in words if word.startswith(("+", "~"))]
    options = parser.parse_args([word for word in words if word not in settings])
    numbers = sorted(set(options.steps))
    if len(numbers) < 3:
        parser.error("--steps: pass at least three different numbers, so that a line can be fitted")
    runs: dict[int, list[Measured]] = {steps: [] for steps in numbers}
    for _, steps in itertools.product(range(options.runs), numbers):
        with tempfile.TemporaryDirectory() as folder:
            environment = write_environment(Path(folder))
            case = Case(options.in_flight, 0.0, options.rollouts, max(options.in_flight, WARM_UP_STEPS // steps))
            runs[steps].append(measure(case, "responses", steps, settings, environment=environment))
    measured = {steps: middle_of(each) for steps, each in runs.items()}
    print_rows(measured)
    cost = fitted({steps: run.cpu_ms_in_all for steps, run in measured.items()})
    ratio = cost.of(LATE_STEP) / cost.of(1)
    print(f"step 1: {cost.of(1):.2f} ms, step {LATE_STEP}: {cost.of(LATE_STEP):.2f} ms, "
          f"{ratio:.2f} times as much (target {ALLOWED_RATIO:g})")  # fmt: skip
    lost = {steps: run.rollouts - run.scored for steps, run in measured.items() if run.scored < run.rollouts}
    if lost:
        print(f"LOST, by the number of steps: {lost}")
    print(json.dumps({
        "bench": "steps", "in_flight": options.in_flight, "settings": settings, "runs": options.runs,
        "step_1_ms": cost.of(1), f"step_{LATE_STEP}_ms": cost.of(LATE_STEP), "ratio": ratio, "lost": lost,
        "cases": [{"steps": steps, "rollouts": run.rollouts, "rollouts_per_s": run.rollouts_per_s,
                   "cpu_ms": run.cpu_ms_in_all, "by_role": run.cpu_ms, "row_bytes": run.row_bytes,
                   "pss_mb": run.pss_mb, "others_share": run.others_share} for steps, run in measured.items()],
    }))  # fmt: skip
    return 0
