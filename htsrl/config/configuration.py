"""Both halves of the configuration: `Experiment`, which may change the result, and `Placement`, which must not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from htsrl.config.experiment import Experiment
from htsrl.config.placement import Placement


@dataclass(frozen=True)
class Config:
    """What `htsrl.train` takes; an environment in place of the experiment stands for one with the plain defaults."""

    experiment: Experiment
    placement: Placement = field(default_factory=Placement)

    def __post_init__(self) -> None:
        """An environment stands for an experiment with the plain defaults."""
        object.__setattr__(self, "experiment", as_experiment(self.experiment))


def as_experiment(given: Any) -> Any:
    is_env = isinstance(given, str) or (callable(given) and not isinstance(given, Experiment))
    return Experiment(given) if is_env else given


def with_seed(config: Config, seed: int) -> Config:
    return replace(config, experiment=replace(config.experiment, seed=seed))
