"""Model folders, prompts and rewards that are made in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from htsrl.numerics import single_threaded

LETTERS = "abcdefghijklmnopqrstuvwxyz .,:"
TEMPLATE = "{% for m in messages %}{{ m['role'][0] }}: {{ m['content'] }}. {% endfor %}"
PROMPTS = ("a cat", "the dog ran", "we", "once upon a time", "rain, rain", "go", "my old house", "to be", "it was")


def make_tokenizer(**others: Any) -> Any:
    """A token for every letter."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(["<pad>", "</s>", "<unk>", *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{**named, **others})


def make_model(kind: str = "llama", seed: int = 0, **others: Any) -> Any:
    """Two layers of 32 numbers."""
    import transformers

    size = len(LETTERS) + 3
    common = {"vocab_size": size, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    llama = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    }
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    configs: dict[str, Any] = {
        "llama": lambda: transformers.LlamaConfig(**{**common, **llama, **others}),
        "qwen3": lambda: transformers.Qwen3Config(**{**common, **llama, "head_dim": 8, **others}),
        "gpt2": lambda: transformers.GPT2Config(**{**common, **gpt2, **others}),
        "gpt_neox": lambda: transformers.GPTNeoXConfig(
            **{**common, **llama, "rotary_pct": 1.0, "tie_word_embeddings": False, **others}
        ),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(configs[kind]())
        with torch.no_grad():
            for parameter in model.parameters():  # larger than usual, for tokens to differ in probability
                if parameter.dim() > 1:
                    parameter.mul_(8)
    return model


def make_folder(folder: Path, kind: str = "llama", **others: Any) -> Path:
    make_model(kind, **others).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_files(folder: Path) -> dict[str, Any]:
    """What every run on text begins with."""
    return {"model": make_folder(folder / "model"), "prompts": write_prompts(folder / "prompts.jsonl")}


def write_prompts(path: Path, prompts: Any = PROMPTS, **columns: Any) -> Path:
    lines = [
        {"prompt": prompt, **{name: values[i] for name, values in columns.items()}} for i, prompt in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def products_agree_here() -> bool:
    """Whether rows of the models' products have the same bits among any number of others, from the few on that htsrl
    pads to: not every processor's have (MKL_CBWR=COMPATIBLE makes one of those of any)."""
    shapes = ((32, 16), (32, 32), (32, 33), (32, 64), (32, 96), (32, 128), (64, 32), (128, 32))
    with single_threaded():
        return all(_rows_agree(columns, outputs) for columns, outputs in shapes)


def _rows_agree(columns: int, outputs: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    rows, weights = (torch.randn(size, columns, generator=generator) for size in (440, outputs))
    together = linear(rows, weights)
    return all(torch.equal(linear(rows[:few], weights), together[:few]) for few in range(4, 40))


only_where_products_agree = pytest.mark.skipif(
    not products_agree_here(), reason="this processor's products depend on how many rows there are"
)
