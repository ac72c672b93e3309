"""Reward models: trained on pairs of completions, and asked for scores by the folder that they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from htsrl.errors import ConfigError
from htsrl.language.model_folder import (
    check_folder,
    import_transformers,
    load_tokenizer,
    quietly,
    read_model_config,
    save_folder,
)
from htsrl.language.prompts import prompt_text
from htsrl.language.rewards import Attempts, Outcome, RewardFunction, Texts
from htsrl.language.supervised import (
    FitSettings,
    Fitted,
    Say,
    check_output,
    digest_of,
    fit,
    padded,
    read_examples,
)
from htsrl.language.task import TextTask
from htsrl.numerics import OwnNumerics, single_threaded

HELD_OUT = 10
"""One pair of so many is kept to measure accuracy on."""
ASKED_ROWS = 32

Pair = tuple[Sequence[int], Sequence[int]]
"""Tokens of the better text, and of the worse."""


class ModelReward:
    """The score that a reward model gives to prompt and completion together."""

    is_async = False

    def __init__(self, folder: str, attempts: Attempts) -> None:
        path = check_folder(folder, "reward model")
        self.name = folder
        self.attempts = attempts
        self._tokenizer = load_tokenizer(folder)
        self._model = _load_classifier(path)
        self._max_length = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def origin(self) -> object:
        """htsrl and transformers, which the fingerprint has anyway."""
        return "transformers"

    def score(self, texts: Texts) -> Outcome:
        return self.attempts.ask(self.name, lambda: self._scored(texts), len(texts))

    async def score_async(self, texts: Texts) -> Outcome:
        return self.score(texts)

    @torch.inference_mode()
    def _scored(self, texts: Texts) -> Outcome:
        """All at once, in the shape that they have: the same texts have the same scores."""
        together = [p + c for p, c in zip(texts.prompt_texts, texts.completions, strict=True)]
        rows = [self._tokenizer(text)["input_ids"][-(self._max_length or 0) :] for text in together]
        with OwnNumerics():
            scores = _scores(self._model, rows, self._tokenizer.pad_token_id)
        found = scores.numpy().astype(np.float32)
        odd = ~np.isfinite(found)
        return Outcome(np.where(odd, np.nan, found), "gave scores that are not finite" if odd.any() else "")


def build_rewards(task: TextTask) -> list[RewardFunction | ModelReward]:
    for name in task.reward_funcs:
        if is_folder(name) and not Path(name).exists():
            raise ConfigError(f"reward {name!r} is neither MODULE:FUNCTION nor the folder of a reward model")
    attempts = Attempts(task.reward_seconds, task.reward_attempts)
    return [
        ModelReward(name, attempts) if is_folder(name) else RewardFunction(name, attempts) for name in task.reward_funcs
    ]


def is_folder(reward: str) -> bool:
    """Whether a reward is named by a folder, not as MODULE:FUNCTION."""
    return ":" not in reward or Path(reward).is_dir()


def train_reward_model(
    model: str | Path,
    data: str | Path,
    output_dir: str | Path,
    settings: FitSettings | None = None,
    say: Say = lambda step, of, numbers: None,
) -> Fitted:
    """Train a reward model on JSON lines of `prompt`, `chosen` and `rejected`, of which one in ten is held out.

    It minimises -log sigmoid(score of the chosen - score of the rejected) (Bradley and Terry).
    """
    settings, output = settings or FitSettings(), Path(output_dir)
    settings.check()
    check_output(output)
    read_model_config(str(model))
    tokenizer = load_tokenizer(str(model))
    lines = read_examples(Path(data), "data")
    pairs = [_pair(line, tokenizer, f"{data}, line {n}", settings) for n, line in enumerate(lines, start=1)]
    learned = [pair for place, pair in enumerate(pairs) if place % HELD_OUT != HELD_OUT - 1]
    held_out = pairs[HELD_OUT - 1 :: HELD_OUT]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)  # for the new head
        trained = _load_classifier(Path(model), num_labels=1)
    trained.config.pad_token_id = tokenizer.pad_token_id

    def margins(chosen: Sequence[Pair]) -> Tensor:
        scores = _scores(
            trained, [*(better for better, _ in chosen), *(worse for _, worse in chosen)], tokenizer.pad_token_id
        )
        better, worse = scores.chunk(2)
        return better - worse

    def loss_of(chosen: Sequence[Pair]) -> tuple[Tensor, Mapping[str, float]]:
        found = margins(chosen)
        return -torch.nn.functional.logsigmoid(found).mean(), {"accuracy": float((found > 0).float().mean())}

    metrics = fit(trained, learned, loss_of, settings, say)
    if held_out:
        with torch.inference_mode(), single_threaded(), OwnNumerics():
            parts = [margins(held_out[i : i + ASKED_ROWS]) for i in range(0, len(held_out), ASKED_ROWS)]
            metrics["eval_accuracy"] = float((torch.cat(parts) > 0).float().mean())
    save_folder(output, trained, tokenizer)
    return Fitted(output, settings.num_steps(len(learned)), metrics, digest_of(trained))


def _scores(model: Any, rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    tokens = padded(rows, filler)
    attended = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    logits: Tensor = model(input_ids=tokens, attention_mask=attended.long()).logits
    return logits[:, 0]


def _load_classifier(folder: Path, **others: Any) -> Any:
    try:
        with quietly(new_head="num_labels" in others):
            model = import_transformers().AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                **others,
            )
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise ConfigError(f"{folder} cannot be loaded as a reward model: {reason}") from error
    if model.config.num_labels != 1:
        raise ConfigError(
            f"{folder} has {model.config.num_labels} labels; a reward model has one: make it with `htsrl reward-model`"
        )
    return model.eval()


def _pair(line: Mapping[str, Any], tokenizer: Any, where: str, settings: FitSettings) -> Pair:
    if missing := [name for name in ("chosen", "rejected") if not isinstance(line.get(name), str)]:
        raise ConfigError(f"{where} must have text as `{missing[0]}`, and a `prompt` before it")
    prompt = prompt_text(line.get("prompt", ""), tokenizer, where)
    better, worse = (tokenizer(prompt + line[name])["input_ids"] for name in ("chosen", "rejected"))
    if not better or not worse:
        raise ConfigError(f"{where} has a text without tokens")
    if max(len(better), len(worse)) > settings.max_length:
        raise ConfigError(f"{where} has {max(len(better), len(worse))} tokens, over max_length={settings.max_length}")
    return better, worse
