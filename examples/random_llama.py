"""Make a Llama with random weights, its tokenizer and its chat template: `python random_llama.py FOLDER [GGUF]`.

The interpreter needs torch and transformers, and gguf for the second file. Equal versions make equal files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CONTEXT = 2048
MERGES = 200
# The merges of these words make several tokens of one text possible, as in a real vocabulary. So the tokens that a
# model samples often differ from those of their text.
WORDS = """
You may call one or more tools. The tools are listed here as JSON: name, description, parameters, arguments, type,
function, object, properties, required, string, integer, boolean. The user asks, the assistant thinks and answers.
Turn the dial to the left or to the right, open the door, look at the map, and report the number of the room.
"""
TEMPLATE = """
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}
{{- 'Tools:\\n' }}
{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and of merges, trained with `WORDS`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    size = len(alphabet) + len(SPECIAL) + MERGES
    made.train_from_iterator(
        [WORDS] * 4,
        trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    made.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE,
        model_max_length=CONTEXT,
    )  # fmt: skip


def save_model(folder: Path) -> None:
    """Write the model and its tokenizer in the form of Hugging Face."""
    made = tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, bos_token_id=None,
        eos_token_id=made.eos_token_id, pad_token_id=made.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    made.save_pretrained(folder)
    # Sampling must depend on the request alone.
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": made.eos_token_id}))


def save_gguf(folder: Path, path: Path) -> None:
    """Write a saved model as a GGUF file."""
    import gguf

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    made = PreTrainedTokenizerFast.from_pretrained(folder)
    config, weights = model.config, model.state_dict()
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // heads)
    writer.add_vocab_size(len(made))
    _add_tokenizer(writer, made)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for key, tensor in weights.items():
        layer, _, part = key.removeprefix("model.layers.").partition(".")
        own = key.startswith("model.layers.")
        name = names[(part if own else key).removesuffix(".weight")]
        # GGUF interleaves the two halves of each head's rotary dimensions.
        shown = (
            _interleaved(tensor, heads if name == "attn_q" else kv_heads) if name in ("attn_q", "attn_k") else tensor
        )
        writer.add_tensor(f"blk.{layer}.{name}.weight" if own else f"{name}.weight", shown.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer, made: PreTrainedTokenizerFast) -> None:
    import gguf

    saved = json.loads(made.backend_tokenizer.to_str())
    tokens = made.convert_ids_to_tokens(list(range(len(made))))
    kinds = {**dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL), **dict.fromkeys(MARKS, gguf.TokenType.USER_DEFINED)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in saved["model"]["merges"]])
    writer.add_eos_token_id(made.eos_token_id)
    writer.add_pad_token_id(made.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


if __name__ == "__main__":
    save_model(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        save_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
