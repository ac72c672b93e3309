"""Tasks whose answers can be checked, for a model of 0.1 million parameters: sort letters, and spell words backward.

Spelling is a task of reasoning-gym (`pip install reasoning-gym`): its words, and its verifier; of a question the words
that are the same in all are left out.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from htsrl.config import Placement
from htsrl.errors import ConfigError
from htsrl_bench.language.bible import write_lines

NUM_EXAMPLES, NUM_PROMPTS, NUM_HELD_OUT = 20_000, 10_000, 500
NUM_LETTERS = 10
WORD_LETTERS = (5, 8)
WIDTH, NUM_LAYERS = 64, 2
GYM = "spell_backward"
HERE = __name__


def right_letters(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The share of places with the right letter."""
    return [
        sum(a == b for a, b in zip(text, right, strict=False)) / max(len(text), len(right))
        for text, right in zip(completions, answer, strict=True)
    ]


def exact(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 where all is right."""
    return [float(text == right) for text, right in zip(completions, answer, strict=True)]


def verified(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """As reasoning-gym scores them: 1, or the share of right letters."""
    score = _gym(1).score_answer
    return [float(score(text, {"answer": right})) for text, right in zip(completions, answer, strict=True)]


@cache
def _gym(size: int) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise ConfigError("the task needs reasoning-gym; `pip install reasoning-gym`") from error
    shortest, longest = WORD_LETTERS
    return reasoning_gym.create_dataset(GYM, size=size, seed=1, min_word_len=shortest, max_word_len=longest)


def _sorting() -> Iterator[tuple[str, str]]:
    draw = random.Random(1)
    while True:
        letters = draw.choices(string.ascii_lowercase, k=NUM_LETTERS)
        yield "".join(letters), "".join(sorted(letters))


def _spelling() -> Iterator[tuple[str, str]]:
    for entry in _gym(NUM_EXAMPLES + NUM_PROMPTS + NUM_HELD_OUT):
        yield entry["metadata"]["word"].lower(), entry["answer"].lower()


@dataclass(frozen=True)
class VerifiableTask:
    """Pairs of a question and its answer, and how completions are rewarded."""

    pairs: Callable[[], Iterator[tuple[str, str]]]
    reward: str
    sft_steps: int
    """Few, so that there is something left to learn."""
    missing_eos_penalty: float | None = None
    """For a verifier that does not see what follows an answer."""


TASKS: Mapping[str, VerifiableTask] = {
    "sorting": VerifiableTask(_sorting, f"{HERE}:right_letters", 150),
    GYM: VerifiableTask(_spelling, f"{HERE}:verified", 300, missing_eos_penalty=0.5),
}


@dataclass(frozen=True)
class Learning:
    """How runs learn."""

    updates: int
    batch: int
    learning_rate: float

    @property
    def name(self) -> str:
        return f"updates-{self.updates}-batch-{self.batch}-rate-{self.learning_rate:g}"


@dataclass(frozen=True)
class Shares:
    """Of held-out prompts, how many are right to the letter."""

    drawn: float
    greedy: float


@dataclass(frozen=True)
class Learned:
    """What reinforcement learning made of a model that had been fine-tuned."""

    task: str
    seed: int
    before: Shares
    after: Shares
    digest: str


def runs_folder(task: str, runs: Path, learning: Learning) -> Path:
    """Where runs are kept: those that begin or learn otherwise have another folder."""
    own = TASKS[task]
    penalty = "" if own.missing_eos_penalty is None else f"-penalty-{own.missing_eos_penalty:g}"
    return runs / f"{task}-sft-{own.sft_steps}{penalty}-{learning.name}"


def prepare(task: str, folder: Path) -> None:
    """Data, and a model that has learned a little from examples."""
    from htsrl.language.sft import sft
    from htsrl.language.supervised import FitSettings

    if (folder / "sft").is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    pairs = TASKS[task].pairs()
    for name, key, count in (
        ("examples", "completion", NUM_EXAMPLES),
        ("prompts", "answer", NUM_PROMPTS),
        ("held_out", "answer", NUM_HELD_OUT),
    ):
        lines = [{"prompt": f"{question}:", key: answer} for question, answer in islice(pairs, count)]
        write_lines(folder / f"{name}.jsonl", lines)
    _write_model(folder / "new")
    settings = FitSettings(2e-3, max_steps=TASKS[task].sft_steps, per_device_train_batch_size=64)
    sft(folder / "new", folder / "examples.jsonl", folder / "sft", settings)


def learn(task: str, seed: int, folder: Path, learning: Learning) -> Learned:
    """RLOO at lag 1, from wherever the run came to."""
    from htsrl.language.evaluate import evaluate_text
    from htsrl.language.rlhf import rlhf_config, rlhf_or_resume
    from htsrl.observers.dispatch import Watching

    run_dir = folder / f"seed-{seed}"
    config = rlhf_config(
        folder / "sft",
        folder / "prompts.jsonl",
        [TASKS[task].reward, f"{HERE}:exact"],
        "rloo",
        Placement("inline", run_dir=run_dir, tensorboard=False, progress="off"),
        eval_prompts=str(folder / "held_out.jsonl"),
        total_episodes=learning.updates * learning.batch,
        generation_batch_size=learning.batch,
        num_generations=4,
        max_completion_length=NUM_LETTERS + 2,
        missing_eos_penalty=TASKS[task].missing_eos_penalty,
        learning_rate=learning.learning_rate,
        beta=0.0,
        seed=seed,
    )
    result = rlhf_or_resume(config, Watching((), False))

    def shares(version: int | None) -> Shares:
        found = [
            evaluate_text(run_dir, NUM_HELD_OUT, sampled=sampled, version=version, trust=True).mean_rewards["exact"]
            for sampled in (True, False)
        ]
        return Shares(*found)

    return Learned(task, seed, shares(0), shares(None), result.digest)


def _write_model(folder: Path) -> None:
    """Two layers, and a token for each letter."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokens = ["<pad>", "</s>", "<unk>", ":", *string.ascii_lowercase]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    shape = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": NUM_LAYERS}
    ends = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = LlamaForCausalLM(
            LlamaConfig(vocab_size=len(tokens), num_attention_heads=4, max_position_embeddings=32, **shape, **ends)
        )
        model.save_pretrained(folder)
