"""Observation of one conversation, for the fields `ng_agent_observations` and `ng_trajectory` of its result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import MODEL_TIER
from nemo_gym.http.reply import Reply
from nemo_gym.schemas.rollout import MODEL_CALL_HEADER
from nemo_gym.schemas.shapes import Item
from nemo_gym.schemas.tokens import TOKEN_METADATA_FIELDS


@dataclass(frozen=True)
class _ModelCall:
    began_at: float
    reference: Mapping[str, object] | None
    heard: int
    """The number of items that followed the input when the model was called."""


@dataclass
class _Turn:
    question: list[Item]
    items: list[Item] = field(default_factory=list)
    calls: list[_ModelCall] = field(default_factory=list)


class Observer:
    """A recorder of one conversation's model calls and tool calls, with their times."""

    def __init__(self, agent: str) -> None:
        """Use `agent`, the name of the agent's server, as the id of the agent's invocation."""
        self._agent = agent
        self._began = time.monotonic()
        self._model_calls: list[_ModelCall] = []
        self._tool_calls: list[Mapping[str, object]] = []

    def note_model_call(
        self, model: str, reply: Reply, turn: Mapping[str, object], began_at: float, heard: int
    ) -> None:
        """Record a completed call. `heard` is the number of items that followed the input when the call began."""
        recorded = hooks().headers(reply).get(MODEL_CALL_HEADER)
        server = {"type": MODEL_TIER, "name": model}
        reference = {"model_call_id": recorded, "model_ref": server, "response_id": turn.get("id")}
        is_named = reference["model_call_id"] is not None or reference["response_id"] is not None
        self._model_calls.append(_ModelCall(began_at, reference if is_named else None, heard))

    def tool_call(self, call: Item, began_at: float) -> Mapping[str, object]:
        """Return the observation of a tool call that has just ended."""
        ended_at = max(began_at, time.time())
        return {
            "kind": "tool_call",
            "invocation_id": self._agent,
            "tool_call_id": call["call_id"],
            "tool_name": call["name"],
            "started_at": round(began_at, 6),
            "completed_at": round(ended_at, 6),
            "duration_ms": round(1000 * (ended_at - began_at), 3),
            "timing_source": "harness",
            "status": "completed",
        }

    def note_tool_calls(self, observations: Sequence[Mapping[str, object]]) -> None:
        self._tool_calls += observations

    def observations(self, asked: Sequence[Item], said: Sequence[Item], *, was_cut_off: bool) -> dict[str, object]:
        """Return the field `ng_agent_observations`. `asked` are the items of the input, `said` are all later items."""
        invocation = {
            "kind": "agent_invocation",
            "invocation_id": self._agent,
            "status": "incomplete" if was_cut_off else "completed",
            "duration_ms": round(1000 * (time.monotonic() - self._began), 3),
            "model_calls": _references(self._model_calls),
            "conversation": _without_tokens([*asked, *said]),
        }
        records = [invocation, *self._tool_calls]
        return {"ng_agent_observations": {"source": self._agent, "records": records, "gaps": []}}

    def trajectory(
        self, asked: Sequence[Item], said: Sequence[Item], ids: dict[str, str], resolved: bool | None
    ) -> dict[str, object]:
        """Return the field `ng_trajectory`. `ids` has `task_id` and `rollout_id`. `resolved` is for the last turn."""
        turns = [turn for turn in self._turns(asked, said) if turn.calls]
        written = [
            {
                **ids,
                "invocation_id": self._agent,
                "turn_no": number,
                "timestamp": round(turn.calls[0].began_at, 6),
                "question": _without_tokens(turn.question),
                "answer": [item for item in _without_tokens(turn.items) if item.get("type") == "message"],
                "reasoning_content": [i for i in _without_tokens(turn.items) if i.get("type") == "reasoning"] or None,
                "resolved": resolved if number == len(turns) else None,
                "step_count": len(turn.calls),
                "model_calls": _references(turn.calls),
            }
            for number, turn in enumerate(turns, start=1)
        ]
        return {"ng_trajectory": {**ids, "turns": written}}

    def _turns(self, asked: Sequence[Item], said: Sequence[Item]) -> list[_Turn]:
        """Return the turns. Each user message after a model call begins a new turn."""
        turns = [_Turn(list(asked))]
        calls = self._model_calls[::-1]
        for heard, item in enumerate(said):
            while calls and calls[-1].heard <= heard:
                turns[-1].calls.append(calls.pop())
            if item.get("role") != "user":
                turns[-1].items.append(item)
            elif turns[-1].calls:
                turns.append(_Turn([item]))
            else:
                turns[-1].question.append(item)
        turns[-1].calls += calls[::-1]
        return turns


def _references(calls: Sequence[_ModelCall]) -> list[Mapping[str, object]]:
    return [call.reference for call in calls if call.reference is not None]


def _without_tokens(items: Sequence[Item]) -> list[Mapping[str, object]]:
    return [{name: value for name, value in item.items() if name not in TOKEN_METADATA_FIELDS} for item in items]
