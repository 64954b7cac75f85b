"""Training examples in the formats of TRL, NeMo RL, OpenAI and Harbor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.data.media_files import MediaFiles
from nemo_gym.training.atif import atif, with_media_in_files
from nemo_gym.training.conversations import Conversation


@dataclass(frozen=True)
class Format:
    """A file format of training examples. Exactly one of `of_rollout`, `of_rated` and `of_pair` is set."""

    of_rollout: Callable[[Conversation], Mapping[str, object]] | None = None
    of_rated: Callable[[Conversation, bool], Mapping[str, object]] | None = None
    """A function that makes an example from a rollout. Its second argument is whether the example is a good one."""
    of_pair: Callable[[Conversation, Conversation], Mapping[str, object]] | None = None
    """A function that makes an example from a chosen and a rejected rollout."""
    arguments_as_text: bool = False
    keeps_reasoning: bool = True
    """Whether reasoning stays in the messages if the user does not set `reasoning`."""
    is_whole: bool = False
    """Whether examples need the token ids, and also the messages after the policy's last one."""
    with_files: Callable[[Mapping[str, Any], MediaFiles], Mapping[str, object]] | None = None
    """A function that saves an example's images and replaces them with paths, if the format requires paths."""
    takes_one_answer: bool = False
    """Whether the completion must be a single message."""


def _with_tools(example: Mapping[str, object], conversation: Conversation) -> Mapping[str, object]:
    # Leave out an empty list, because some chat templates introduce tools even if the list is empty.
    return {**example, "tools": conversation.tools} if conversation.tools else example


def _messages(rollout: Conversation) -> Mapping[str, object]:
    return _with_tools({"messages": rollout.prompt + rollout.completion}, rollout)


def _prompt_completion(rollout: Conversation) -> Mapping[str, object]:
    return _with_tools({"prompt": rollout.prompt, "completion": rollout.completion}, rollout)


def _preference(chosen: Conversation, rejected: Conversation) -> Mapping[str, object]:
    example = {"prompt": chosen.prompt, "chosen": chosen.completion, "rejected": rejected.completion}
    return _with_tools(example, chosen)


def _unpaired(rollout: Conversation, is_good: bool) -> Mapping[str, object]:
    example = {"prompt": rollout.prompt, "completion": rollout.completion, "label": is_good}
    return _with_tools(example, rollout)


def _nemo_rl_preference(chosen: Conversation, rejected: Conversation) -> Mapping[str, object]:
    ranked = [{"rank": rank, "completion": each.completion} for rank, each in enumerate((chosen, rejected))]
    return _with_tools({"context": chosen.prompt, "completions": ranked}, chosen)


def _openai_tools(rollout: Conversation) -> Mapping[str, object]:
    fields = _with_tools({}, rollout)
    if rollout.tools and rollout.parallel_tool_calls is not None:
        return {**fields, "parallel_tool_calls": rollout.parallel_tool_calls}
    return fields


def _openai(rollout: Conversation) -> Mapping[str, object]:
    return {"messages": rollout.prompt + rollout.completion, **_openai_tools(rollout)}


def _openai_preference(chosen: Conversation, rejected: Conversation) -> Mapping[str, object]:
    return {
        "input": {"messages": chosen.prompt, **_openai_tools(chosen)},
        "preferred_output": chosen.completion,
        "non_preferred_output": rejected.completion,
    }


_BY_NAME: Mapping[str, Format] = {
    "messages": Format(of_rollout=_messages),
    "prompt_completion": Format(of_rollout=_prompt_completion),
    "preference": Format(of_pair=_preference),
    "unpaired": Format(of_rated=_unpaired),
    "nemo_rl_sft": Format(of_rollout=_messages),
    "nemo_rl_preference": Format(of_pair=_nemo_rl_preference),
    "openai": Format(of_rollout=_openai, arguments_as_text=True, keeps_reasoning=False),
    "openai_preference": Format(
        of_pair=_openai_preference, arguments_as_text=True, keeps_reasoning=False, takes_one_answer=True
    ),
    "atif": Format(of_rollout=atif, is_whole=True, with_files=with_media_in_files),
}
FORMATS: Mapping[str, Format] = {
    **_BY_NAME, "sft": _BY_NAME["messages"], "dpo": _BY_NAME["preference"], "kto": _BY_NAME["unpaired"]
}  # fmt: skip
"""All formats by name. Chat templates take the arguments of tool calls as objects, but OpenAI takes them as text."""
