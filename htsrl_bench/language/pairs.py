"""Pairs for the proxy reward model: two completions of each prompt by the model that all runs begin with.

`python -m htsrl_bench.language.pairs FOLDER` writes FOLDER/pairs.jsonl, from FOLDER/sft and FOLDER/prompts.jsonl.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from htsrl_bench.language.bible import write_pairs

COMPLETION_TOKENS = 32
NUM_PAIRS = 2048


def two_of_each(model: Path, file: Path, count: int) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Two completions of each of the first prompts."""
    from htsrl.language.generation import Completion, Generation, Request, Sampling
    from htsrl.language.model_folder import load_causal_model, load_tokenizer
    from htsrl.language.plan import MAX_ROWS, end_tokens
    from htsrl.language.policy import TextPolicy
    from htsrl.language.prompts import read_prompts
    from htsrl.numerics import OwnNumerics, single_threaded
    from htsrl.seeding import Purpose

    tokenizer: Any = load_tokenizer(str(model))
    prompts = read_prompts(str(file), tokenizer, None)[:count]
    width = max(len(prompt.tokens) for prompt in prompts) + COMPLETION_TOKENS
    sampling = Sampling(0, COMPLETION_TOKENS, end_tokens(str(model), tokenizer), purpose=Purpose.EVALUATION_TOKENS)
    made: dict[int, Completion] = {}
    requests = [Request(2 * place + k, prompt.tokens, place, k) for place, prompt in enumerate(prompts) for k in (0, 1)]
    with single_threaded(), OwnNumerics():
        policy = TextPolicy(load_causal_model(str(model)), width, temperature=1.0)
        Generation(policy, sampling, MAX_ROWS).complete(requests, lambda text: made.update({text.request.column: text}))
    texts = [tokenizer.decode(made[column].tokens, skip_special_tokens=True) for column in range(2 * len(prompts))]
    return [prompt.text for prompt in prompts], [texts[2 * i : 2 * i + 2] for i in range(len(prompts))]


if __name__ == "__main__":
    task = Path(sys.argv[1])
    write_pairs(task / "pairs.jsonl", *two_of_each(task / "sft", task / "prompts.jsonl", NUM_PAIRS))
