"""Writes down what a run reports: metrics, digest, progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from htsrl.config import Config
from htsrl.config.algorithm_settings import algorithm_name
from htsrl.config.file import env_name
from htsrl.metrics.episodes import Row
from htsrl.metrics.gauges import Counters, ReadCounters
from htsrl.metrics.histograms import episode_histograms
from htsrl.metrics.line_file import LineFile
from htsrl.metrics.progress import open_progress
from htsrl.metrics.report import UpdateReport
from htsrl.metrics.result import RunResult
from htsrl.metrics.sinks import JsonLines
from htsrl.processes.interrupts import uninterrupted
from htsrl.runs.folder import RunFolder
from htsrl.runs.open_sinks import open_sinks

Readings = Callable[[], dict[str, float]]
"""What the workers have written about themselves so far, such as seconds waited, by metric name."""


EpisodesOf = Callable[[int], Iterable[Row]]

STARTING_SECONDS = 2.0
"""Without an update for so long, a run says what it is starting."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands when it begins, or is resumed."""

    version: int = 0
    steps: int = 0
    digest: str = ""
    mean_return: float | None = None
    seconds: float = 0.0
    env_errors: int = 0
    is_finished: bool = False


class Recorder:
    """Takes the learner's reports as they come."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        readings: Readings,
        standing: Standing,
        read_counters: ReadCounters = Counters,
        episodes_of: EpisodesOf = lambda version: (),
    ) -> None:
        """`episodes_of` gives the last episodes as of a version, or none where they are not known any more."""
        experiment, placement = config.experiment, config.placement
        self._folder = folder
        self._updates_per_line = max(1, round(placement.log_every_steps / experiment.batch_steps))
        self._readings = readings
        self._episodes_of = episodes_of
        self._goal, self._num_intervals = experiment.stop_at_return, experiment.num_intervals
        total_steps = experiment.num_intervals * experiment.batch_steps
        title = f"{env_name(experiment.env)}  {algorithm_name(experiment.algorithm)} under {experiment.schedule}"
        self._progress = open_progress(placement.progress, total_steps, title, read_counters)
        self._metrics_file = JsonLines(folder.metrics_file, self.say)
        self._histograms_file = JsonLines(folder.histograms_file, self.say)
        self._sinks = open_sinks(config, folder, standing.steps, self.say)
        self._digest_file = LineFile(folder.digest_file, self.say)
        self._schedule_file = LineFile(folder.schedule_file, self.say) if experiment.is_recorded else None
        self._clock = Clock(standing.steps, standing.seconds)
        self._standing = standing
        self._restarts = 0
        self._stop_reason: str | None = None
        self._said_starting = False
        self._evaluations: Mapping[str, Any] = {}

    def record(self, report: UpdateReport) -> None:
        """Write a report down, all of it or nothing; one that a new learner gives once more is known already."""
        if report.version > self.version:
            with uninterrupted():
                self._record(report)

    def _record(self, report: UpdateReport) -> None:
        self._digest_file.write(report.link.to_json())
        if self._schedule_file is not None and report.provenance is not None:
            self._schedule_file.write(report.provenance)
        self._clock.tick(report.steps)
        metrics = {**report.metrics, **self._clock.metrics()}
        if report.version % self._updates_per_line == 0 or report.finished:
            metrics |= self._readings()
            self._metrics_file.write(report.steps, metrics)
            for sink in self._sinks:
                sink.write(report.steps, metrics)
            self._record_histograms(report)
        self._progress.update(report.steps, metrics)
        mean_return, seconds = report.metrics.get("rollout/ep_rew_mean"), self._clock.seconds
        env_errors = int(report.metrics.get("rollout/env_errors", 0))
        self._standing = Standing(
            version=report.version,
            steps=report.steps,
            digest=report.link.chain,
            mean_return=mean_return,
            seconds=seconds,
            env_errors=env_errors,
            is_finished=report.finished,
        )

    def _record_histograms(self, report: UpdateReport) -> None:
        histograms = episode_histograms(self._episodes_of(report.version))
        if histograms:
            for sink in (self._histograms_file, *self._sinks):
                sink.write_histograms(report.steps, histograms)

    def say(self, line: str) -> None:
        self._progress.say(line)

    def note_stop(self, reason: str) -> None:
        """The run ends here because somebody asked for it."""
        self._stop_reason = reason

    def record_evaluation(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Of the version after so many steps; `evaluations.jsonl` has it already."""
        for sink in self._sinks:
            sink.write(steps, metrics)
        self._progress.note("eval", _evaluation_text(steps, metrics))

    def note_played(self, played: int, episodes: int) -> None:
        """How far the evaluation of the last version has come, for which the end of the run waits."""
        self._progress.note("eval", f"of the last version: {played} of {episodes} episodes played")

    def note_starting(self, workers: str) -> None:
        """Say once that these start, where that takes so long that one wonders."""
        if not self._said_starting and self._clock.seconds_without_update > STARTING_SECONDS:
            self._said_starting = True
            self._progress.note("starting", workers)

    def note_stall(self, seconds: float, text: str) -> None:
        """Nothing was reported for so long, and why."""
        self._progress.stall(seconds, text)

    def note_checkpoint(self, version: int) -> None:
        self._progress.note("checkpoint", f"of update {version} at {time.strftime('%H:%M')}")

    def note_evaluations(self, summary: Mapping[str, Any]) -> None:
        """What the result says of evaluations beside training, by its own names."""
        self._evaluations = summary

    def note_restart(self, line: str) -> None:
        self._restarts += 1
        self.say(line)
        self._progress.note("restarts", str(self._restarts))

    def sync(self) -> None:
        """Have what was recorded on the disk, not only with the operating system; OSError where it is not."""
        self._digest_file.sync()
        if self._schedule_file is not None:
            self._schedule_file.sync()
        self._metrics_file.sync()

    @property
    def version(self) -> int:
        """The newest version that was reported: the one that digest and metrics speak of."""
        return self._standing.version

    @property
    def goal_reached(self) -> bool:
        """Whether the run ended because of `stop_at_return`, before its last interval."""
        standing = self._standing
        return self._goal is not None and standing.is_finished and standing.version < self._num_intervals

    def result(self) -> RunResult:
        standing = self._standing
        return RunResult(
            run_dir=self._folder.shown,
            steps=standing.steps,
            updates=standing.version,
            digest=standing.digest,
            mean_return=standing.mean_return,
            steps_per_second=self._clock.steps_per_second,
            seconds=self._clock.seconds,
            starting_seconds=self._clock.starting_seconds,
            interrupted=not standing.is_finished and not self._evaluations.get("eval_goal_reached", False),
            goal_reached=self.goal_reached,
            env_errors=standing.env_errors,
            restarts=self._restarts,
            stop_reason=self._stop_reason,
            numerics_changes=len(self._folder.numerics_changes()),
            sink_failures=sum(sink.failures for sink in self._sinks),
            **self._evaluations,
        )

    def close(self) -> None:
        with ExitStack() as closing:  # all of them, even if one fails
            closing.callback(self._metrics_file.close)
            closing.callback(self._histograms_file.close)
            for sink in self._sinks:
                closing.callback(sink.close)
            closing.callback(self._digest_file.close)
            if self._schedule_file is not None:
                closing.callback(self._schedule_file.close)
            closing.callback(self._progress.close)


def _evaluation_text(steps: int, metrics: Mapping[str, float]) -> str:
    success = metrics.get("eval/success_rate")
    return f"return {metrics['eval/mean_reward']:.1f} at {steps:,} steps" + (
        "" if success is None else f", success {success:.0%}"
    )


class Clock:
    """How long a run has taken and how fast it is once it is under way."""

    def __init__(self, steps: int = 0, seconds: float = 0.0) -> None:
        """Of a run that is resumed after so many steps and seconds."""
        self._before = seconds
        self._start = (time.monotonic(), steps)
        self._ticks: list[tuple[float, int]] = []
        """The first updates and the last one, as (time, steps)."""

    def tick(self, steps: int) -> None:
        self._ticks = [*self._ticks[:2], (time.monotonic(), steps)]

    @property
    def seconds_without_update(self) -> float:
        """Since the start; 0 from the first update on."""
        return 0.0 if self._ticks else time.monotonic() - self._start[0]

    @property
    def starting_seconds(self) -> float:
        """From the start, or the resume, to the first update."""
        return self._ticks[0][0] - self._start[0] if self._ticks else 0.0

    @property
    def seconds(self) -> float:
        return self._before + (self._ticks[-1][0] - self._start[0] if self._ticks else 0.0)

    @property
    def steps_per_second(self) -> float:
        """From the second update on: before it, processes start and the pipeline fills with two rollouts at once."""
        if not self._ticks:
            return 0.0
        first_time, first_steps = self._ticks[1] if len(self._ticks) == 3 else self._start
        last_time, last_steps = self._ticks[-1]
        return (last_steps - first_steps) / max(last_time - first_time, 1e-9)

    def metrics(self) -> dict[str, float]:
        return {
            "time/fps": self.steps_per_second,
            "time/time_elapsed": self.seconds,
            "time/total_timesteps": float(self._ticks[-1][1]),
        }
