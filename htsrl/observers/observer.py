"""What an observer is, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from htsrl.config import Config
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.result import RunResult

Parameters = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ObservedRun:
    """The run that an observer watches."""

    config: Config
    run_dir: Path
    version: int
    """The version that it starts from: 0, or that of the checkpoint it was resumed from."""
    steps: int
    """Environment steps made before."""
    stop: Callable[[str], None]
    """Ask the run to end, saying why; it ends in order after one of the next updates, and can be resumed."""


@dataclass(frozen=True)
class UpdateEvent:
    """One update."""

    version: int
    """The version that it made."""
    steps: int
    metrics: Mapping[str, float]
    """All metrics of the update, whether or not they are written to the run's files this time."""
    parameters: Callable[[], Parameters | None] = field(repr=False)
    """A copy of the version's parameters by name, which nobody can write to; None once a later version has its place,
    as happens to an observer that is several updates late."""


@dataclass(frozen=True)
class EpisodeEvent:
    """An episode that ended, as the update learned of it."""

    env: int
    version: int
    """The version that the update made."""
    steps: int
    episode_return: float
    length: int
    info: Mapping[str, float]
    """The numbers of the last step's `info` that are logged: `is_success`, and those of `log_info`."""


@dataclass(frozen=True)
class CheckpointEvent:
    """A checkpoint that is whole on the disk."""

    version: int
    path: Path


class Observer(Protocol):
    """Derive from it and define what you want to hear of; all calls come from one thread, in order."""

    def on_start(self, run: ObservedRun) -> None:
        """Before the first update."""
        return

    def on_update(self, event: UpdateEvent) -> None:
        """After every update."""
        return

    def on_episode(self, event: EpisodeEvent) -> None:
        """For every episode that ended, before `on_update` of the same update."""
        return

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        """After every checkpoint."""
        return

    def on_end(self, result: RunResult) -> None:
        """When the run has ended, in whatever way, and its files are written."""
        return

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After every evaluation beside training (`eval_every`), whose `steps` say when its version was made; without
        them after `on_end`, when `train --eval-episodes` has played its episodes with the final policy."""
        return
