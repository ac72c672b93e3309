"""A language task of two turns: find a secret letter. Writes a new model and prompts, and is the environment.

python -m examples.guess_letter guessing
htsrl rlhf --model guessing/new --prompts guessing/prompts.jsonl --environment examples.guess_letter:GuessLetter ...
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

LETTERS = "abcd"
PROMPT = "guess:"
NUM_TURNS = 2


class GuessLetter:
    """Tells whether the secret comes before or after the first guess; only who listens finds it in three of four."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._num_guesses = 0

    def step(self, text: str) -> tuple[str, float, bool]:
        """What a guess leads to: an answer, a reward, and whether the game is over."""
        self._num_guesses += 1
        found = text == self._secret
        return "<" if self._secret < text else ">", float(found), found or self._num_guesses == NUM_TURNS


def write_task(folder: Path, num_prompts: int = 400, seed: int = 1) -> None:
    """A model that knows nothing, its tokenizer with a token for each letter, and secrets."""
    folder.mkdir(parents=True)
    tokenizer = _tokenizer()
    _model(len(tokenizer), seed).save_pretrained(folder / "new")
    tokenizer.save_pretrained(folder / "new")
    drawn = random.Random(seed)
    lines = [{"prompt": PROMPT, "secret": drawn.choice(LETTERS)} for _ in range(num_prompts)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = ["<pad>", "</s>", "<unk>", *sorted({*LETTERS, *PROMPT, *"<>"})]
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
            hidden_size=32,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=16,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


if __name__ == "__main__":
    write_task(Path(sys.argv[1]))
