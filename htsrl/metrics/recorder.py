"""Writes down what a run reports: metrics, digest, progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO

from htsrl.config import Config
from htsrl.config_file import env_name
from htsrl.interrupts import uninterrupted
from htsrl.metrics.progress import open_progress
from htsrl.metrics.sinks import JsonLines, Sink, TensorBoard
from htsrl.roles.report import UpdateReport
from htsrl.run_folder import RunFolder, RunResult

Readings = Callable[[], dict[str, float]]
"""What the workers have written about themselves so far, such as seconds waited, by metric name."""


class Recorder:
    """Takes the learner's reports as they come."""

    def __init__(self, config: Config, folder: RunFolder, readings: Readings) -> None:
        experiment, placement = config.experiment, config.placement
        self._folder = folder
        self._updates_per_line = max(1, round(placement.log_every_steps / experiment.batch_steps))
        self._readings = readings
        self._sinks: list[Sink] = [JsonLines(folder.metrics_file)]
        if placement.tensorboard:
            self._sinks.append(TensorBoard(folder.tensorboard_dir))
        self._digest_file: IO[str] = open(folder.digest_file, "a")  # noqa: SIM115
        total_steps = experiment.num_intervals * experiment.batch_steps
        title = f"{env_name(experiment.env)}  {experiment.algorithm.name} under {experiment.schedule}"
        self._progress = open_progress(placement.progress, total_steps, title)
        self._clock = Clock()
        self._last: UpdateReport | None = None

    def record(self, report: UpdateReport) -> None:
        """Write a report down, all of it or nothing."""
        with uninterrupted():
            self._record(report)

    def _record(self, report: UpdateReport) -> None:
        self._digest_file.write(report.link.to_json() + "\n")
        self._clock.tick(report.steps)
        metrics = {**report.metrics, **self._clock.metrics()}
        if report.version % self._updates_per_line == 0 or report.finished:
            metrics |= self._readings()
            for sink in self._sinks:
                sink.write(report.steps, metrics)
            self._digest_file.flush()
        self._progress.update(report.steps, metrics)
        self._last = report

    def say(self, line: str) -> None:
        self._progress.say(line)

    @property
    def version(self) -> int:
        """The newest version that was reported: the one that digest and metrics speak of."""
        return self._last.version if self._last else 0

    def result(self) -> RunResult:
        last = self._last
        return RunResult(
            run_dir=self._folder.path,
            steps=last.steps if last else 0,
            updates=last.version if last else 0,
            digest=last.link.chain if last else "",
            mean_return=last.metrics.get("rollout/ep_rew_mean") if last else None,
            steps_per_second=self._clock.steps_per_second,
            seconds=self._clock.seconds,
            interrupted=not (last and last.finished),
        )

    def close(self) -> None:
        with ExitStack() as closing:  # all of them, even if one fails
            for sink in self._sinks:
                closing.callback(sink.close)
            closing.callback(self._digest_file.close)
            closing.callback(self._progress.close)


class Clock:
    """How long a run has taken and how fast it is once it is under way."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._ticks: list[tuple[float, int]] = []
        """The first updates and the last one, as (time, steps)."""

    def tick(self, steps: int) -> None:
        self._ticks = [*self._ticks[:2], (time.monotonic(), steps)]

    @property
    def seconds(self) -> float:
        return self._ticks[-1][0] - self._start if self._ticks else 0.0

    @property
    def steps_per_second(self) -> float:
        """From the second update on: before it, processes start and the pipeline fills with two rollouts at once."""
        if not self._ticks:
            return 0.0
        first_time, first_steps = self._ticks[1] if len(self._ticks) == 3 else (self._start, 0)
        last_time, last_steps = self._ticks[-1]
        return (last_steps - first_steps) / max(last_time - first_time, 1e-9)

    def metrics(self) -> dict[str, float]:
        return {
            "time/fps": self.steps_per_second,
            "time/time_elapsed": self.seconds,
            "time/total_timesteps": float(self._ticks[-1][1]),
        }
