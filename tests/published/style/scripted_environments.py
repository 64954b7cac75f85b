"""The scripts of the policy and the judge for the environments of this folder."""

from __future__ import annotations

SCRIPTED_MODEL = '''
"""A model that follows the script in the row's metadata, or returns the answer in its config."""

import itertools
import json
from collections import defaultdict

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
    current_rollout_id,
)
from nemo_gym.testing import call, reply

turns = defaultdict(itertools.count)


class ScriptedConfig(BaseResponsesAPIModelConfig):
    answer: str = ""


class ScriptedModel(SimpleResponsesAPIModel):
    config: ScriptedConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        if not body.metadata:
            return reply(self.config.answer)
        turn = json.loads(body.metadata["script"])[next(turns[current_rollout_id()])]
        return reply(turn) if isinstance(turn, str) else reply(*(call(name, **arguments) for name, arguments in turn))

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        message = {"role": "assistant", "content": self.config.answer}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return NeMoGymChatCompletion.model_validate({"id": "c", "created": 0, "model": "m", "choices": [choice]})
'''
MODELS = """
shared_word: plum
judge_concurrency: 2
user_temperature: 0.5
policy_model:
  responses_api_models:
    scripted_model: {entrypoint: app.py}
judge_model:
  responses_api_models:
    scripted_model: {entrypoint: app.py, answer: "[[YES]] Score: 8"}
"""
FENCE = "`" * 3
SCRIPTS = {
    "exact_word": [["It is Lutetia."]],
    "running_sum": [[[["add", {"number": 3}]], [["add", {"number": 4}]], "Done."]],
    "any_tool": [[[["greet", {"whom": "Ada"}]], "Done."]],
    "route_swap": [["green"]],
    "opened_library": [[[["find_title", {"starts_with": "Em"}]], "Emma"]],
    "event_hooks": [["Hello"]],
    "phone_book": [[[["look_up", {"name": "Ada"}]], "555-0101"]],
    "prefix_tree": [["gol"]],
    "asked_judge": [["Austen"]],
    "called_judge": [["It is."]],
    "graded_maths": [[r"\boxed{4}"], [r"\boxed{5}"]],
    "many_rewards": [["Please, do sit down on that chair."]],
    "address_book": [["Hello"]],
    "worker_threads": [[f"{FENCE}python\nprint(6 * 7)\n{FENCE}"]],
    "guess_number": [["10", "Fifteen, no: 14", "12"]],
    "verified_cases": [["4"]],
    "task_box": [[[["put", {"content": "hat"}]], "It is in."]],
    "strict_word": [["Well, it is Paris."]],
    "pooled_counter": [[[["count", {"text": "plum"}]], "4"]],
    "sibling_modules": [["the cat sat down"]],
    "failed_rows": [["1"], ["2"], ["3"], [[["break_it", {"how": "brutally"}]], "4"]],
    "marked_rollouts": [["Hello"]],
    "summed_metrics": [["Hello"]],
    "note_pad": [[[["write", {"line": "b"}]], [["read", {}]], "Done."]],
    "shop_tools": [[[["order", {"item": "apple", "quantity": 2}]], [["buy_pear", {}], ["basket", {}]], "Done."]],
    "cohort_rank": [["Hello"]],
    "spawned_pool": [["abcxx"]],
    "asked_user": [[[["ask", {"question": each}]] for each in ("Who?", "Where?", "Why?")] + ["I know."]],
    "packaged_env": [["lutetia"], ["Rome"]],
    "noted_over_mcp": [[[["add_note", {"text": "milk", "tags": ["food"]}]], "Noted."]],
}
"""The policy's turns for each example row of a folder."""
