"""Makes a tiny model of the Qwen3 kind, without any hub: `python model.py FOLDER` with the packages' Python.

Its tokenizer is trained here on a few sentences; its weights are zeros, since the simulated worker reads none.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SENTENCES = (
    "simulated: no model computed this. Hello, my name is simulated. The capital of France is computed.",
    "The president of the United States is this, and the future of AI is no model. Beijing is a capital.",
    "system user assistant: you are a simulated assistant. Say hello. What is the meaning of life?",
)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 512, 64, 2, 4, 2, 32, 128
CONTEXT = 40960


def make(folder: pathlib.Path) -> None:
    """Write the model's files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    begin, _start, end = (tokenizer.token_to_id(token) for token in TOKENS)
    files: dict[str, dict[str, Any]] = {
        "config.json": _config(begin, end),
        "generation_config.json": {
            "bos_token_id": begin,
            "eos_token_id": [end],
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.95,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TOKENS[2],
            "pad_token": TOKENS[0],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(_weights())


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 10, trainer)
    return tokenizer


def _config(begin: int, end: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "max_window_layers": LAYERS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": begin,
        "eos_token_id": end,
        "use_cache": True,
        "use_sliding_window": False,
    }


def _weights() -> bytes:
    """A safetensors file: the length of the header, the header, the tensors one after the other."""
    shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj.weight": [HEADS * HEAD, HIDDEN],
            f"{name}.self_attn.k_proj.weight": [KV_HEADS * HEAD, HIDDEN],
            f"{name}.self_attn.v_proj.weight": [KV_HEADS * HEAD, HIDDEN],
            f"{name}.self_attn.o_proj.weight": [HIDDEN, HEADS * HEAD],
            f"{name}.self_attn.q_norm.weight": [HEAD],
            f"{name}.self_attn.k_norm.weight": [HEAD],
            f"{name}.mlp.gate_proj.weight": [INNER, HIDDEN],
            f"{name}.mlp.up_proj.weight": [INNER, HIDDEN],
            f"{name}.mlp.down_proj.weight": [HIDDEN, INNER],
            f"{name}.input_layernorm.weight": [HIDDEN],
            f"{name}.post_attention_layernorm.weight": [HIDDEN],
        }
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    size = 0
    for name, shape in shapes.items():
        length = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, size + length]}
        size += length
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
