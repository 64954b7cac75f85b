"""A tiny Llama with random weights and its tokenizer, both made here. Nothing is downloaded.

Without other words, they are for the counter of example_session_state_mgmt. Each tool call is one token, so that a
random model sometimes calls the right tool.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from counter_servers import TARGETS
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

PAD, UNKNOWN, END = "<pad>", "<unknown>", "<end>"
ROLES = ["<system>", "<user>", "<assistant>", "<tool>"]
WORDS = ["Bring", "the", "counter", "to", "Done.", '{"success":true}', *map(str, TARGETS)]
CALL_BEGINS, CALL_ENDS = "<tool_call>", "</tool_call>"

# A message with calls ends with its last call, so a template that adds a result never changes the text before it.
CHAT_TEMPLATE = """
{%- for message in messages -%}
<{{ message.role }}> {{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
{%- if message.role == 'assistant' and not message.tool_calls -%}<end>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}
"""
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<assistant>",
    "fields": {
        "tool_calls": {
            "open": CALL_BEGINS,
            "close": CALL_ENDS,
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": END, "content": "text"},
    },
}


def call_token(count: int) -> str:
    """Return the token that adds to the counter."""
    call = {"name": "increment_counter", "arguments": {"count": count}}
    return f"{CALL_BEGINS}{json.dumps(call)}{CALL_ENDS}"


CALLS = [call_token(count) for count in TARGETS]


def make_tokenizer(words: Sequence[str] = WORDS, ends: Sequence[str] = CALLS) -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at spaces. `ends` are tokens that end a turn, such as calls."""
    vocabulary = [PAD, UNKNOWN, END, *ROLES, *words]
    model = Tokenizer(WordLevel({word: number for number, word in enumerate(vocabulary)}, UNKNOWN))
    model.pre_tokenizer = WhitespaceSplit()
    model.add_special_tokens([AddedToken(word) for word in (PAD, END, *ROLES)])
    model.add_tokens([AddedToken(end, normalized=False) for end in ends])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token=PAD, unk_token=UNKNOWN, eos_token=END, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int, ends: Sequence[str] = CALLS) -> LlamaForCausalLM:
    """Return a model with random weights. Its turn ends with `<end>` or with one of `ends`."""
    set_seed(seed)
    # Such a small model computes faster in one thread.
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None, eos_token_id=[tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(ends))],
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model
