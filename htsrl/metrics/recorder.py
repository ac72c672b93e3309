"""Writes down what a run reports: metrics, digest, progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from htsrl.config import Config
from htsrl.config_file import env_name
from htsrl.metrics.progress import open_progress
from htsrl.metrics.sinks import JsonLines, Sink, TensorBoard
from htsrl.roles.report import UpdateReport
from htsrl.run_folder import RunFolder, RunResult

WaitedSeconds = Callable[[], dict[str, float]]
"""Seconds that the processes of each role have waited so far, by metric name."""


class Recorder:
    """Takes the learner's reports as they come."""

    def __init__(self, config: Config, folder: RunFolder, waited_seconds: WaitedSeconds) -> None:
        experiment, placement = config.experiment, config.placement
        self._updates_per_line = max(1, round(placement.log_every_steps / experiment.batch_steps))
        self._waited_seconds = waited_seconds
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
        self._digest_file.write(report.link.to_json() + "\n")
        self._clock.tick(report.steps)
        metrics = {**report.metrics, **self._clock.metrics()}
        if report.version % self._updates_per_line == 0 or report.finished:
            metrics |= self._waited_seconds()
            for sink in self._sinks:
                sink.write(report.steps, metrics)
            self._digest_file.flush()
        self._progress.update(report.steps, metrics)
        self._last = report

    def result(self, run_dir: Path, interrupted: bool) -> RunResult:
        last = self._last
        return RunResult(
            run_dir=run_dir,
            steps=last.steps if last else 0,
            updates=last.version if last else 0,
            digest=last.link.chain if last else "",
            mean_return=last.metrics.get("rollout/ep_rew_mean") if last else None,
            steps_per_second=self._clock.steps_per_second,
            seconds=self._clock.seconds,
            interrupted=interrupted,
        )

    def close(self) -> None:
        self._progress.close()
        self._digest_file.close()
        for sink in self._sinks:
            sink.close()


class Clock:
    """How long a run has taken and how fast it is, from its first update on: starting up is not training."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] = (self._start, 0)

    def tick(self, steps: int) -> None:
        self._last = (time.monotonic(), steps)
        self._first = self._first or self._last

    @property
    def seconds(self) -> float:
        return self._last[0] - self._start

    @property
    def steps_per_second(self) -> float:
        first_time, first_steps = self._first or (self._start, 0)
        if self._last[1] == first_steps:  # a single update: all there is to divide by is the whole time
            first_time, first_steps = self._start, 0
        return (self._last[1] - first_steps) / max(self._last[0] - first_time, 1e-9)

    def metrics(self) -> dict[str, float]:
        return {
            "time/fps": self.steps_per_second,
            "time/time_elapsed": self.seconds,
            "time/total_timesteps": float(self._last[1]),
        }
