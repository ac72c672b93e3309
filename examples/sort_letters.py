"""A language task from nothing: sort ten letters. Writes a new model, examples and prompts, and scores completions.

python -m examples.sort_letters sorting
htsrl sft --model sorting/new --data sorting/examples.jsonl --output-dir sorting/sft ...
htsrl rlhf --model sorting/sft --prompts sorting/prompts.jsonl --reward examples.sort_letters:right_letters ...
"""

from __future__ import annotations

import json
import random
import string
import sys
from pathlib import Path
from typing import Any

NUM_LETTERS = 10
WIDTH, NUM_LAYERS, NUM_HEADS = 64, 2, 4


def right_letters(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The share of places with the right letter."""
    return [
        sum(a == b for a, b in zip(text, right, strict=False)) / max(len(text), len(right))
        for text, right in zip(completions, answer, strict=True)
    ]


def exact(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 where all is right."""
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def write_task(folder: Path, num_examples: int = 20_000, num_prompts: int = 20_000, seed: int = 1) -> None:
    """A model that knows nothing, its tokenizer with a token for each letter, and data."""
    folder.mkdir(parents=True)
    tokenizer = _tokenizer()
    _model(len(tokenizer), seed).save_pretrained(folder / "new")
    tokenizer.save_pretrained(folder / "new")
    drawn = random.Random(seed)
    _write(folder / "examples.jsonl", [_line(drawn, "completion") for _ in range(num_examples)])
    _write(folder / "prompts.jsonl", [_line(drawn, "answer") for _ in range(num_prompts)])
    _write(folder / "held_out.jsonl", [_line(drawn, "answer") for _ in range(500)])


def _line(drawn: random.Random, name: str) -> dict[str, str]:
    letters = drawn.choices(string.ascii_lowercase, k=NUM_LETTERS)
    return {"prompt": "".join(letters) + ":", name: "".join(sorted(letters))}


def _write(path: Path, lines: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = ["<pad>", "</s>", "<unk>", ":", *string.ascii_lowercase]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def _model(vocabulary: int, seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=NUM_HEADS,
            num_key_value_heads=NUM_HEADS,
            max_position_embeddings=32,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


if __name__ == "__main__":
    write_task(Path(sys.argv[1]))
