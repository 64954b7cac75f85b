"""Check a run's model endpoints, run a few trial rollouts, and forecast the time and cost of the whole run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.problems import failure_of_call, failure_of_reply
from nemo_gym.context.rollout_id import rollout_context
from nemo_gym.errors import ModelFailed, RolloutError, ServerCallError
from nemo_gym.http.reply import Timeouts
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.records.conversation import answer_of, calls_of
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.runner import JSON, Runner
from nemo_gym.rollouts.usage import PriceFile, Tokens, Usage
from nemo_gym.schemas.responses import RESPONSES_PATH
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS
from nemo_gym.text import counted

ANSWER_TOKENS = 1024
"""The maximum number of output tokens of a check, enough for a model that reasons before it answers."""
CALLS_TOOLS = "calls tools"
OPTIONS_OF_VLLM = "vLLM needs --enable-auto-tool-choice and --tool-call-parser."
NUMBER = 7
TOOL: Mapping[str, object] = {
    "type": "function",
    "name": "report_number",
    "description": "Report a number.",
    "parameters": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Finding(NamedTuple):
    """The result of one check of a server or of the price file."""

    server: str
    check: str
    is_good: bool
    detail: str


class Tried(NamedTuple):
    """A rollout that was run as a trial, with its record and its duration."""

    agent: str
    record: Record
    seconds: float

    @property
    def is_scored(self) -> bool:
        return self.record.outcome is Outcome.SCORED

    @property
    def was_cut_off(self) -> bool:
        """Whether the model's last answer is incomplete."""
        return (self.record.row.response or {}).get("incomplete_details") is not None


class Forecast(NamedTuple):
    """The estimated tokens, cost and time of a whole run, extrapolated from the trial rollouts."""

    rollouts: int
    tokens: Tokens | None
    """The tokens of the whole run. None if the endpoint does not report tokens."""
    cost: float | None
    seconds: float
    """The time for all rollouts, given how many run in parallel. At least the time of the slowest trial rollout."""


async def check_models(
    client: ServerClient,
    models: Iterable[str],
    *,
    calls_tools: bool,
    wants_tokens: bool,
    timeout_s: float,
    tool_choice: object = None,
) -> list[Finding]:
    """Check that each model server answers. Also check tool calls and token ids if the run needs them.

    `tool_choice` is the one of the run's tasks. If it names a tool, the check's tool is named instead.
    """
    tools: JsonObject = {"tools": [TOOL]}
    if tool_choice is not None:
        named = {"type": "function", "name": TOOL["name"]}
        tools["tool_choice"] = tool_choice if isinstance(tool_choice, str) else named
    found = [_check_model(client, each, tools if calls_tools else None, wants_tokens, timeout_s) for each in models]
    return [finding for findings in await asyncio.gather(*found) for finding in findings]


async def _check_model(
    client: ServerClient, model: str, tools: JsonObject | None, wants_tokens: bool, timeout_s: float
) -> list[Finding]:
    began_at = time.monotonic()
    try:
        answer = await _ask(client, model, {"input": _user("Reply with the word OK.")}, timeout_s)
    except RolloutError as error:
        return [Finding(model, "answers", False, str(error))]
    named = f"model '{answer.get('model')}'"
    found = [Finding(model, "answers", True, f"in {time.monotonic() - began_at:.1f} s, {named}")]
    if wants_tokens:
        found.append(_finding_of_tokens(model, answer))
    if tools is not None:
        asked = {"input": _user(f"Call the tool report_number with the number {NUMBER}."), **tools}
        try:
            found.append(_finding_of_call(model, await _ask(client, model, asked, timeout_s)))
        except RolloutError as error:
            found.append(Finding(model, CALLS_TOOLS, False, f"{error} {OPTIONS_OF_VLLM}"))
    return found


def _finding_of_call(model: str, answer: JsonObject) -> Finding:
    calls = [item for item in answer["output"] if item.get("type") == "function_call"]
    if not calls:
        advice = f"Does the endpoint parse tool calls? {OPTIONS_OF_VLLM}"
        return Finding(model, CALLS_TOOLS, False, f"answered in words instead of calling the tool. {advice}")
    try:
        given = orjson.loads(calls[0]["arguments"])
    except orjson.JSONDecodeError:
        return Finding(model, CALLS_TOOLS, False, f"the arguments are not JSON: {calls[0]['arguments'][:80]!r}")
    is_right = calls[0]["name"] == TOOL["name"] and given == {"number": NUMBER}
    detail = f"called {calls[0]['name']}({calls[0]['arguments'][:80]})"
    return Finding(
        model, CALLS_TOOLS, True, detail if is_right else f"{detail}, but was asked for the number {NUMBER}"
    )


def with_own_tools(findings: Sequence[Finding], tried: Sequence[Tried], models: Mapping[str, str]) -> list[Finding]:
    """Accept a model that failed to call the check's tool, if it called the environment's own tools in rollouts.

    `models` has the model server of each agent.
    """
    calls: dict[str, Counter[str]] = {}
    for each in tried:
        names = [str(call["name"]) for call in calls_of(answer_of(each.record.row.response or {}))]
        calls.setdefault(models.get(each.agent, ""), Counter()).update(names)
    return [
        Finding(found.server, found.check, True, f"called {_counted(calls[found.server])} in its rollouts")
        if found.check == CALLS_TOOLS and not found.is_good and calls.get(found.server)
        else found
        for found in findings
    ]


def _counted(calls: Counter[str]) -> str:
    return ", ".join(f"{name} ({counted(count, 'time')})" for name, count in calls.most_common(3))


def _finding_of_tokens(model: str, answer: JsonObject) -> Finding:
    found = [
        item
        for item in answer["output"]
        if all(isinstance(item.get(name), list) for name in REQUIRED_TOKEN_METADATA_FIELDS)
    ]
    if not found:
        advice = "Set return_token_id_information: true on a vllm_model server."
        return Finding(model, "returns token ids", False, f"none in the answer. {advice}")
    prompt, sampled = (len(found[0][name]) for name in REQUIRED_TOKEN_METADATA_FIELDS[:2])
    return Finding(model, "returns token ids", True, f"{prompt} of the prompt, {sampled} sampled")


def _user(text: str) -> list[Mapping[str, object]]:
    return [{"role": "user", "content": text}]


async def _ask(client: ServerClient, model: str, params: Mapping[str, object], timeout_s: float) -> JsonObject:
    """Send one request to a model server and return its response. Raise `RolloutError` if the call fails."""
    data = dump_json({**params, "max_output_tokens": ANSWER_TOKENS})
    timeouts = Timeouts(read_s=timeout_s, total_s=timeout_s)
    with rollout_context("health-check"):
        try:
            reply = await client.post(model, RESPONSES_PATH, data=data, headers=JSON, timeouts=timeouts)
            body = await reply.read()
        except ServerCallError as error:
            raise failure_of_call(error, server=model, otherwise=ModelFailed) from error
    if not reply.ok:
        raise failure_of_reply(reply.status, body, server=model, during=RESPONSES_PATH, otherwise=ModelFailed)
    answer: JsonObject = orjson.loads(body)
    return answer


async def try_rollouts(client: ServerClient, rows: Sequence[Row], *, timeout_s: float) -> list[Tried]:
    """Run all of these rows concurrently, as trial rollouts."""
    runner = Runner(client, rollout_timeout_s=timeout_s)

    async def tried(row: Row) -> Tried:
        began_at = time.monotonic()
        record = await runner.run(row)
        return Tried(str(row.agent), record, time.monotonic() - began_at)

    return await asyncio.gather(*map(tried, rows))


def findings_of_rollouts(tried: Sequence[Tried]) -> list[Finding]:
    """Return the findings about each agent.

    One finding has the rewards, or the reason for the first failure. Another one counts answers that were cut off.
    """
    by_agent: dict[str, list[Tried]] = {}
    for each in tried:
        by_agent.setdefault(each.agent, []).append(each)
    found = [_finding_of_agent(agent, rollouts) for agent, rollouts in by_agent.items()]
    return found + [
        Finding(
            agent, "has room", False,
            f"the answer was cut off in {cut} of {len(rollouts)} rollouts. Does the longest prompt fit into the "
            "model's context together with max_output_tokens?",
        )
        for agent, rollouts in by_agent.items()
        if (cut := sum(each.was_cut_off for each in rollouts))
    ]  # fmt: skip


def _finding_of_agent(agent: str, tried: Sequence[Tried]) -> Finding:
    failed = [each for each in tried if not each.is_scored]
    if failed:
        reason = failed[0].record.row.failure_message or "the server asked not to keep the result"
        return Finding(agent, "runs rollouts", False, f"{len(failed)} of {len(tried)} failed: {reason}")
    rewards = ", ".join(f"{each.record.reward:g}" for each in tried)
    slowest = max(each.seconds for each in tried)
    return Finding(agent, "runs rollouts", True, f"rewards {rewards}; the slowest took {slowest:.1f} s")


def finding_of_prices(tried: Sequence[Tried], prices: PriceFile) -> Finding:
    """Check whether the price file lists every model that answered a trial rollout."""
    usage = _usage_of(tried)
    if unpriced := usage.unpriced(prices):
        return Finding("prices", "list the models", False, f"no price for {', '.join(unpriced)}")
    return Finding("prices", "list the models", True, ", ".join(usage.by_model) or "no model reported tokens")


def _usage_of(tried: Sequence[Tried]) -> Usage:
    usage = Usage()
    for each in tried:
        usage.add(each.record.tokens, is_scored=each.record.outcome is Outcome.SCORED)
    return usage


def forecast(
    tried: Sequence[Tried], planned: Mapping[str, int], parallel: int, prices: PriceFile | None
) -> Forecast | None:
    """Estimate the tokens, cost and time of `planned` rollouts per agent. Return None if no rollout was scored.

    For an agent without scored rollouts, use the average over the scored rollouts of all agents.
    """
    scored = [each for each in tried if each.is_scored]
    if not scored:
        return None
    tokens, cost, seconds, is_known = Tokens(), 0.0, 0.0, True
    for agent, count in planned.items():
        sample = [each for each in scored if each.agent == agent] or scored
        usage = _usage_of(sample)
        scale = count / len(sample)
        is_known = is_known and not usage.unknown
        tokens = tokens.plus(Tokens(*(round(each * scale) for each in usage.tokens)))
        cost += usage.cost(prices) * scale if prices is not None else 0.0
        seconds += sum(each.seconds for each in sample) * scale
    total = sum(planned.values())
    return Forecast(
        total,
        tokens if is_known else None,
        cost if is_known and prices is not None and not _usage_of(scored).unpriced(prices) else None,
        max(seconds / max(1, min(parallel, total)), *(each.seconds for each in scored)),
    )


def described(forecast: Forecast | None, prices: PriceFile | None) -> str:
    if forecast is None:
        return "no forecast, because no rollout was scored"
    minutes, seconds = divmod(round(forecast.seconds), 60)
    time_needed = f"about {minutes} min {seconds} s" if minutes else f"about {seconds} s"
    line = f"forecast for {counted(forecast.rollouts, 'rollout')}: {time_needed}"
    if forecast.tokens is None:
        return f"{line}; the endpoint does not report tokens"
    line += f", {forecast.tokens.input:,} input and {forecast.tokens.output:,} output tokens"
    return line if forecast.cost is None or prices is None else f"{line}, {forecast.cost:,.4g} {prices.currency}"
