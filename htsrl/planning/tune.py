"""Training that tries placements while it continues: each for some updates, then the fastest to the end.

A placement changes no bit, and a run that is resumed has the bits that it would have had anyway. So the run is stopped
after an update and resumed on other workers, and nothing that was learned meanwhile is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from htsrl.config import Config, Placement, available_cores
from htsrl.config.check import check
from htsrl.errors import ConfigError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Watching
from htsrl.observers.observer import ObservedRun, Observer, UpdateEvent
from htsrl.placements.collector import collector_of
from htsrl.runs.folder import RunFolder
from htsrl.runs.resume import Changes, resume_watched
from htsrl.runs.trust import Vouched

SECONDS_PER_PLACEMENT = 8.0
UNMEASURED_UPDATES = 2
"""Of each placement: acting and learning fall into step."""
MEASURED_UPDATES = 3
WORTH_IT = 1.03
"""How much faster than what htsrl picks by itself another must be to take its place: less is noise."""

Begin = Callable[[Config, Watching], RunResult]


def train_tuned(asked: Config, watching: Watching, begin: Begin) -> RunResult:
    """Train as `begin` does, and find the placement meanwhile."""
    config = check(asked)
    _check_can_be_tuned(config)
    candidates, speeds = list(placements(config)), dict[Placement, float]()
    folder: RunFolder | None = None
    for placement in candidates:
        trial = _Trial(_said(placement))
        with watching.joined_by(trial):
            if folder is None:
                result = begin(replace(asked, placement=placement), watching)
                folder = RunFolder.existing(result.run_dir)
            else:
                result = _resume(folder, asked, placement, watching)
        if trial.steps_per_second is None or result.stop_reason != trial.reason:
            return result  # it has come to its end, or somebody else wants it to
        speeds[placement] = trial.steps_per_second
    assert folder is not None
    fastest = max(speeds, key=lambda placement: speeds[placement])
    chosen = fastest if speeds[fastest] >= WORTH_IT * speeds[candidates[0]] else candidates[0]
    warn_on_stderr(f"auto-tune {_said(chosen)}, {speeds[chosen]:,.0f} steps/s")
    return _resume(folder, asked, chosen, watching)


def placements(config: Config) -> Iterator[Placement]:
    """What htsrl picks by itself, then others with as many workers as the cores can be shared out among."""
    plain, experiment, cores = replace(config.placement, auto_tune=False), config.experiment, available_cores()
    yield plain
    learners = sorted({1, min(experiment.gradient_shards, cores)})
    if plain.executor_threads:
        yield from (replace(plain, learner_workers=count) for count in learners)
        return
    executors = sorted(
        {count for count in (1, cores // 2, cores - 1, cores) if 1 <= count <= experiment.num_simulators}
    )
    for num_executors in executors:
        for count in learners:
            yield replace(
                plain, num_executors=num_executors, num_actors=0, executor_threads=False, learner_workers=count
            )


class _Trial(Observer):
    """Measures a placement, then asks the run to stop."""

    def __init__(self, placement: str) -> None:
        self.reason = f"auto-tune has tried {placement} and continues with another"
        self.steps_per_second: float | None = None
        self._updates = 0

    def on_start(self, run: ObservedRun) -> None:
        self._stop = run.stop

    def on_update(self, event: UpdateEvent) -> None:
        self._updates += 1
        now = time.monotonic()
        if self._updates == UNMEASURED_UPDATES:
            self._begun, self._steps = now, event.steps
        measured = self._updates - UNMEASURED_UPDATES
        is_long_enough = measured >= MEASURED_UPDATES and now - self._begun >= SECONDS_PER_PLACEMENT
        if is_long_enough and self.steps_per_second is None:
            self.steps_per_second = (event.steps - self._steps) / (now - self._begun)
            self._stop(self.reason)


def _resume(folder: RunFolder, asked: Config, placement: Placement, watching: Watching) -> RunResult:
    env = None if isinstance(asked.experiment.env, str) else asked.experiment.env
    vouched = Vouched(everything=True)  # it was begun by this very call
    return resume_watched(folder, Changes(placement=placement, env=env, vouched=vouched), watching)


def _check_can_be_tuned(config: Config) -> None:
    experiment, placement = config.experiment, config.placement
    if placement.backend != "processes":
        raise ConfigError(f"auto_tune moves worker processes; leave it out with placement {placement.backend}")
    if experiment.mixes_versions:
        raise ConfigError(
            f"auto_tune stops and resumes the run, and under schedule={experiment.schedule} its bits depend on timing; "
            "use hts or sync"
        )
    if experiment.source is not None or collector_of(experiment.env) is not None:
        raise ConfigError("auto_tune shares out environments, and this experiment steps none; leave it out")


def _said(placement: Placement) -> str:
    if placement.num_executors is None:
        return "the usual placement"
    return f"--num-executors {placement.num_executors} --learner-workers {placement.learner_workers}"
