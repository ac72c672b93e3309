"""A trial under way: its runs, what they have reached, and whether it is given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htsrl.config import Config, with_seed
from htsrl.digest import read_links
from htsrl.errors import HtsrlError
from htsrl.metrics.returns import file_of, last_step, read_curve, value_at
from htsrl.runs.folder import RunFolder
from htsrl.statistics.curve import Curve
from htsrl.sweeps.job import JobEnd
from htsrl.sweeps.objective import mean_of, value_of
from htsrl.sweeps.spec import SweepSpec
from htsrl.sweeps.trials import RunOutcome, Trial

IS_A_RESULT = frozenset({"TrainingDiverged", "ConfigError", "EnvironmentFailure", "NotReproduced"})
"""Errors that follow from a trial's settings; any other stops the sweep, and the trial is still to be made."""


@dataclass
class RunningTrial:
    """One that was proposed and has not ended."""

    spec: SweepSpec
    number: int
    settings: Mapping[str, Any]
    config: Config
    folder: Path
    known: Sequence[Trial]
    """The trials that it may know."""
    at_steps: dict[int, float] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)
    failures: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By seed: the last step of a run that failed, and why it did."""
    _undecided: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._undecided = list(self.spec.pruning.at)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.spec.search.seeds

    def run_folder(self, seed: int) -> RunFolder:
        return RunFolder(self.folder / f"seed-{seed}")

    def config_with(self, seed: int) -> Config:
        return with_seed(self.config, seed)

    def needs_run(self, seed: int) -> bool:
        """Whether a process has work to do; evaluations are not kept, and are played again."""
        if seed in self.completed:
            return False
        folder = self.run_folder(seed)
        if self.spec.search.objective != "evaluation" and folder.has_result() and folder.is_complete():
            self.completed.add(seed)
            return False
        return True

    def take(self, seed: int, end: JobEnd) -> None:
        """A run has ended."""
        if end.error in IS_A_RESULT and not (end.error == "ConfigError" and end.has_begun):
            self.failures[seed] = self._steps_of(seed), f"seed {seed}: {end.message}"
            return
        if end.error:
            raise HtsrlError(
                f"trial {self.number}, seed {seed}: {end.message}\nThe sweep has stopped in order; the same command "
                "continues it"
            )
        self.completed.add(seed)
        if end.score is not None:
            self.scores[seed] = end.score

    def outcome(self) -> Trial | None:
        """The trial as it ended; None while it is under way."""
        failure = self._failure()  # before pruning looks, which then sees all steps up to the failure
        if pruned := self.given_up():
            return pruned
        if failure is not None:
            return self._failed(failure)
        return self.ended() if self.is_complete() else None

    def steps(self) -> int:
        """Of its slowest run."""
        return min(map(self._steps_of, self.seeds))

    def _steps_of(self, seed: int) -> int:
        return last_step(file_of(self.run_folder(seed).path, self.spec.search.metric))

    def _failure(self) -> str | None:
        """Why the run that failed first, by steps, did so; None until all others are past that step or have ended.

        By then every step of pruning up to the failure can be looked at, whichever run was faster.
        """
        if not self.failures:
            return None
        first = min(step for step, _ in self.failures.values())
        under_way = set(self.seeds) - self.failures.keys() - self.completed
        if any(self._steps_of(seed) <= first for seed in under_way):
            return None
        failed_first = (self.failures[seed] for seed in self.seeds if seed in self.failures)
        return next(reason for step, reason in failed_first if step == first)

    def given_up(self) -> Trial | None:
        """The trial as pruned, once all its runs have reached a step at which the rule says so."""
        while self._undecided and self.steps() >= self._undecided[0]:
            step = self._undecided.pop(0)
            value = mean_of([self._value_at(step, seed) for seed in self.seeds])
            if value is None:
                continue
            self.at_steps[step] = value
            earlier = [trial.at_steps[step] for trial in self.known if step in trial.at_steps]
            if self.spec.pruning.gives_up(value, earlier, self.spec.maximize):
                return self._pruned(step, value)
        return None

    def is_complete(self) -> bool:
        return self.completed >= set(self.seeds)

    def ended(self) -> Trial:
        """The trial with all runs complete."""
        values = [self._value(seed) for seed in self.seeds]
        value = mean_of(values)
        if value is None:
            return self._failed(f"no line of metrics.jsonl has {self.spec.search.metric}; give it more steps")
        runs = [
            RunOutcome(seed, one, self.run_folder(seed).run_result().digest)
            for seed, one in zip(self.seeds, values, strict=True)
        ]
        return Trial(self.number, self.settings, "complete", value, self.at_steps, runs)

    def _value(self, seed: int) -> float | None:
        if self.spec.search.objective == "evaluation":
            return self.scores.get(seed)
        return value_of(self._curve(seed), self.spec.search)

    def _value_at(self, step: int, seed: int) -> float | None:
        metric = self.spec.search.metric
        file = file_of(self.run_folder(seed).path, metric)
        return value_at(file, step, metric) if file.exists() else None

    def _curve(self, seed: int) -> Curve:
        metric = self.spec.search.metric
        file = file_of(self.run_folder(seed).path, metric)
        return read_curve(file, metric) if file.exists() else ()

    def _pruned(self, step: int, value: float) -> Trial:
        """Runs may have gone a little further; what counts, and its digest, ends with the step."""
        batch_steps = self.config.experiment.batch_steps
        runs = []
        for seed in self.seeds:
            curve = self._curve(seed)
            at = next(point for point in curve if point[0] >= step)
            update = at[0] // batch_steps - 1
            runs.append(RunOutcome(seed, at[1], read_links(self.run_folder(seed).path)[update].chain))
        return Trial(self.number, self.settings, "pruned", value, dict(self.at_steps), runs, f"at step {step:,}")

    def _failed(self, reason: str) -> Trial:
        return Trial(self.number, self.settings, "failed", None, dict(self.at_steps), (), reason.splitlines()[0])
