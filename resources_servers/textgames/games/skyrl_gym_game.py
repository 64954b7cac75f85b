"""Environments of skyrl-gym. A row has the arguments of its environment in `extras`."""

from __future__ import annotations

from typing import Any

import skyrl_gym
from omegaconf import OmegaConf
from serve import NotPlayable

RUNS_CODE = ("lcb", "searchcode")


class Game:
    def __init__(self, asked: dict[str, Any]) -> None:
        name, given = asked["game"], asked["env_kwargs"]
        if name not in skyrl_gym.registry:
            raise NotPlayable(f"skyrl-gym has no environment '{name}'. It has: {', '.join(skyrl_gym.registry)}")
        if name in RUNS_CODE:
            raise NotPlayable(f"'{name}' runs programs of the model outside a sandbox, which is not supported")
        config = OmegaConf.create(given.get("env_config") or {})
        try:
            self._env = skyrl_gym.make(name, **{**given, "env_config": config, "extras": asked["extras"]})
        except (AssertionError, KeyError, TypeError) as error:
            raise NotPlayable(f"'{name}': the row's `extras` do not fit ({type(error).__name__}: {error})") from error
        prompt = [{"role": each["role"], "content": _text([each])} for each in asked["prompt"] if "role" in each]
        begun, _ = self._env.init(prompt)
        if begun[: len(prompt)] != prompt:
            raise NotPlayable(f"'{name}' changes the prompt of the row, which is not supported")
        self.beginning = _text(begun[len(prompt) :]) or None

    def step(self, action: str) -> tuple[str | None, float, bool, bool]:
        stepped = self._env.step(action)
        return _text(stepped["observations"]) or None, stepped["reward"], stepped["done"], False


def _text(messages: list[dict[str, Any]]) -> str:
    parts = []
    for content in (each.get("content") or "" for each in messages):
        texts = [part.get("text", "") for part in content] if isinstance(content, list) else [content]
        parts.append("".join(texts))
    return "\n".join(parts)
