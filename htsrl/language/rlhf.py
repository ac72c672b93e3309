"""RLHF from a model's folder, prompts and rewards to a folder with a better model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from htsrl.config import Config, Experiment, Placement
from htsrl.config.algorithm_settings import settings_class
from htsrl.errors import ConfigError
from htsrl.language.task import RLHF, TextTask
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Watching
from htsrl.observers.observer import Observer
from htsrl.train import resume_or_start, train_watched

ALGORITHMS: Mapping[str, str] = {
    "best_of_k": "htsrl.language.algorithms.best_of_k:BestOfK",
    "grpo": "htsrl.language.algorithms.grpo:GRPO",
    "online_dpo": "htsrl.language.algorithms.online_dpo:OnlineDPO",
    "ppo": "htsrl.language.algorithms.ppo:TextPPO",
    "rloo": "htsrl.language.algorithms.rloo:RLOO",
}
"""By the names that people know, as MODULE:CLASS."""
TASK_FIELDS = frozenset(field.name for field in dataclasses.fields(TextTask)) - {"identity"}
EXPERIMENT_FIELDS = frozenset({"gradient_shards", "imports", "lag", "schedule", "seed", "stop_at_return"})


def rlhf(
    model: str | Path,
    prompts: str | Path,
    reward_funcs: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = (),
    algorithm: Any = "rloo",
    placement: Placement | None = None,
    observers: Sequence[Observer] = (),
    **settings: Any,
) -> RunResult:
    """Train a language model to complete prompts so that rewards rise; writes the run's folder.

    `settings` are fields of `TextTask`, of the algorithm's settings, and of the experiment, by name. Raises ConfigError
    before anything starts if it cannot work.
    """
    config = rlhf_config(model, prompts, reward_funcs, algorithm, placement, **settings)
    return train_watched(config, Watching(observers, False))


def rlhf_or_resume(config: Config, watching: Watching) -> RunResult:
    """Start the run, or continue with what is in its folder."""
    return resume_or_start(config, watching)


def rlhf_config(
    model: str | Path,
    prompts: str | Path,
    reward_funcs: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = (),
    algorithm: Any = "rloo",
    placement: Placement | None = None,
    total_episodes: int = 10_000,
    generation_batch_size: int = 64,
    **settings: Any,
) -> Config:
    """The configuration of a run on text: `total_episodes` completions, so many of them in each rollout."""
    from htsrl.language.survey import check_identity, identity_of

    named = isinstance(algorithm, str)
    kind: Any = algorithm_settings(algorithm) if named else type(algorithm)
    fields = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(settings.keys() - fields - TASK_FIELDS - EXPERIMENT_FIELDS):
        known = ", ".join(sorted(fields | TASK_FIELDS | EXPERIMENT_FIELDS))
        raise ConfigError(f"{unknown[0]!r} is no setting of a run on text with this algorithm; known are {known}")
    own = {name: value for name, value in settings.items() if name in fields}
    task = TextTask.of(
        {
            "model": str(Path(model).absolute()),
            "prompts": str(Path(prompts).absolute()),
            "reward_funcs": _reward_names(reward_funcs),
            **{name: value for name, value in settings.items() if name in TASK_FIELDS - {"environment"}},
            "environment": _environment_name(settings.get("environment")),
        }
    )
    task = dataclasses.replace(task, ref_model=_absolute(task.ref_model), eval_prompts=_absolute(task.eval_prompts))
    check_identity(task)
    task = dataclasses.replace(task, identity=identity_of(task))
    experiment = Experiment(
        RLHF,
        task.arguments(),
        algorithm=kind(**own) if named else dataclasses.replace(algorithm, **own),
        num_envs=generation_batch_size,
        sync_interval=1,
        total_steps=total_episodes,
        **{name: value for name, value in settings.items() if name in EXPERIMENT_FIELDS},
    )
    return Config(experiment, placement or Placement(log_every_steps=generation_batch_size))


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def algorithm_settings(name: str) -> Any:
    """The settings of an algorithm on text, by its name or MODULE:CLASS."""
    if name not in ALGORITHMS and ":" not in name:
        raise ConfigError(f"algo {name!r} is not known; use {', '.join(ALGORITHMS)}, or MODULE:CLASS for your own")
    return settings_class(ALGORITHMS.get(name, name))


def _reward_names(given: str | Callable[..., Any] | Sequence[str | Callable[..., Any]]) -> list[str]:
    """Rewards as names under which worker processes and resumed runs find them."""
    rewards = [given] if isinstance(given, str) or callable(given) else list(given)
    return [reward if isinstance(reward, str) else _name_of(reward) for reward in rewards]


def _environment_name(given: Any) -> str | None:
    return given if given is None or isinstance(given, str) else _name_of(given, "environment")


def _name_of(function: Callable[..., Any], what: str = "reward function") -> str:
    name = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '<object>')}"
    if "<" in name or name.startswith("__main__"):
        raise ConfigError(
            f"{what} {name} has no name under which worker processes and resumed runs could import it; put it at the "
            "top of a module"
        )
    return name
