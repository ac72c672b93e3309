"""Evaluation of a run on text: completions of held-out prompts, their scores, and samples that one can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.errors import ConfigError, RunFolderError
from htsrl.language.episodes import Episode, State
from htsrl.language.fields import ENVIRONMENT_REWARD
from htsrl.language.generation import Completion, Generation, Request, Sampling
from htsrl.language.model_folder import load_causal_model, load_tokenizer
from htsrl.language.plan import MAX_ROWS, MODEL_FOLDER, end_tokens, new_game
from htsrl.language.play import Play
from htsrl.language.policy import TextPolicy
from htsrl.language.prompts import Prompt, read_prompts
from htsrl.language.reward_models import build_rewards
from htsrl.language.rewards import Texts, outcomes_of, reward_names
from htsrl.language.task import TextTask
from htsrl.numerics import OwnNumerics, single_threaded
from htsrl.runs.folder import RunFolder
from htsrl.runs.trust import Vouched, admitted_config
from htsrl.seeding import Purpose

REFERENCE = "reference"
"""The column of a prompt's line that its completion is compared with."""


@dataclass(frozen=True)
class Sample:
    """A completion, as one reads it."""

    prompt: str
    completion: str
    score: float


@dataclass(frozen=True)
class TextEvaluation:
    """What a model makes of prompts."""

    model: Path
    mean_score: float
    """The weighted sum of all rewards."""
    mean_rewards: dict[str, float]
    num_scored: int
    ended: float
    """Share of completions that came to their end."""
    win_rate: float | None
    """Share with a higher score than the prompt's `reference`; None where prompts have none, or there is an
    environment."""
    samples: Sequence[Sample]


def evaluate_text(
    run_dir: Path,
    num_prompts: int = 100,
    seed: int = 0,
    sampled: bool = False,
    version: int | None = None,
    trust: bool = False,
    reward_funcs: Sequence[str] | None = None,
) -> TextEvaluation:
    """Complete the first of a run's held-out prompts, or of its prompts if it has no others, with its newest model.

    Greedily, unless `sampled`. `version` 0 is the model that the run began with. `reward_funcs`: score with these in
    place of the run's own.
    """
    folder = RunFolder.existing(run_dir)
    config = admitted_config(folder.config_file, vouched=Vouched(everything=trust))
    task = TextTask.of(config.experiment.env_args)
    if reward_funcs is not None:
        task = replace(task, reward_funcs=tuple(reward_funcs), reward_weights=None)
    model = _model_of(folder, task, version)
    tokenizer = load_tokenizer(task.model)
    prompts = read_prompts(task.eval_prompts or task.prompts, tokenizer, task.max_prompt_length)[:num_prompts]
    with single_threaded(), OwnNumerics():
        completions = _completions(model, task, prompts, Evaluated(seed, sampled))
        texts = [tokenizer.decode(completion.tokens, skip_special_tokens=True) for completion in completions]
        scores = _scores(task, prompts, texts)
        earned = np.array([completion.earned for completion in completions])
        total = scores @ np.array(task.weights) + earned
        win_rate = _win_rate(task, prompts, total)
    has_score = ~np.isnan(total)
    if not has_score.any():
        raise RunFolderError("none of the completions could be scored; look at the rewards")
    return TextEvaluation(
        model,
        float(total[has_score].mean()),
        {name: float(np.nanmean(scores[:, i])) for i, name in enumerate(reward_names(task.reward_funcs))}
        | ({ENVIRONMENT_REWARD: float(np.nanmean(earned))} if task.environment else {}),
        int(has_score.sum()),
        float(np.mean([completion.ended for completion in completions])),
        win_rate,
        [Sample(p.text, text, float(score)) for p, text, score in zip(prompts, texts, total, strict=True)],
    )


@dataclass(frozen=True)
class Evaluated:
    """How completions are drawn."""

    seed: int
    sampled: bool


def _model_of(folder: RunFolder, task: TextTask, version: int | None) -> Path:
    if version not in (None, 0):
        raise ConfigError(
            f"version={version} is not kept as a model; there are the newest, and 0, which the run began with"
        )
    path = Path(task.model) if version == 0 else folder.path / MODEL_FOLDER
    if not path.is_dir():
        raise RunFolderError(f"{folder.shown} holds no {MODEL_FOLDER}/ yet; it is written when a run ends")
    return path


@dataclass(frozen=True)
class _Made:
    """A completion, of one turn or several."""

    tokens: Sequence[int]
    ended: bool
    earned: float = 0.0
    """From the environment; not a number where it failed."""


def _completions(model: Path, task: TextTask, prompts: Sequence[Prompt], how: Evaluated) -> list[_Made]:
    tokenizer = load_tokenizer(task.model)
    width = max(len(prompt.tokens) for prompt in prompts) + task.max_completion_length
    policy = TextPolicy(load_causal_model(str(model)), max(width, 4), task.temperature)
    sampling = Sampling(how.seed, task.max_completion_length, end_tokens(task.model, tokenizer))
    sampling = replace(sampling, greedy=not how.sampled, purpose=Purpose.EVALUATION_TOKENS)
    generation = Generation(policy, sampling, MAX_ROWS)
    if task.environment is not None:
        return _episodes(generation, task, tokenizer, prompts)
    made: dict[int, Completion] = {}
    requests = [Request(place, prompt.tokens, place, 0) for place, prompt in enumerate(prompts)]
    generation.complete(requests, lambda text: made.update({text.request.column: text}))
    return [_Made(made[place].tokens, made[place].ended) for place in range(len(prompts))]


def _episodes(generation: Generation, task: TextTask, tokenizer: Any, prompts: Sequence[Prompt]) -> list[_Made]:
    """Each to its end."""
    game = new_game(task, tokenizer, lambda place: prompts[place], is_training=False)
    episodes = [Episode(place, place, 0, prompt.tokens, begun=0) for place, prompt in enumerate(prompts)]
    assert game.environments is not None, "nobody answers"
    try:
        Play(game, generation, version=0, beat=lambda: None).together(episodes, on_over=lambda episode: None)
    finally:
        game.environments.close()
    return [
        _Made(
            episode.tokens,
            episode.state is State.DONE,
            float("nan") if episode.state is State.FAILED else sum(episode.rewards),
        )
        for episode in episodes
    ]


def _scores(task: TextTask, prompts: Sequence[Prompt], completions: Sequence[str]) -> Any:
    """[prompts, rewards]"""
    texts = Texts(
        [prompt.columns["prompt"] for prompt in prompts],
        [prompt.text for prompt in prompts],
        completions,
        [prompt.columns for prompt in prompts],
    )
    outcomes = outcomes_of(build_rewards(task), texts)
    return np.array([outcome.scores for outcome in outcomes], np.float64).reshape(-1, len(completions)).T


def _win_rate(task: TextTask, prompts: Sequence[Prompt], total: Any) -> float | None:
    if task.environment is not None:
        return None  # nobody has played the references
    references = [prompt.columns.get(REFERENCE) for prompt in prompts]
    if not all(isinstance(reference, str) for reference in references):
        return None
    other = _scores(task, prompts, [str(reference) for reference in references]) @ np.array(task.weights)
    both = ~np.isnan(total) & ~np.isnan(other)
    return float((total[both] > other[both]).mean()) if both.any() else None
