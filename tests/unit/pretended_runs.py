"""Runs of sweeps and groups without training: their files follow from settings and seed, their ends from chance."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from htsrl.digest import Link
from htsrl.metrics.result import RunResult
from htsrl.runs.folder import RunFolder
from htsrl.sweeps.job import JobEnd, TrainJob
from htsrl.sweeps.pool import Launch


class Killed(Exception):
    """Stands for SIGKILL: the sweep ends between two lines."""


class PretendedRun:
    """Writes its metrics bit by bit, each time somebody asks whether it has ended."""

    def __init__(self, job: TrainJob, chance: random.Random, diverges_above: float) -> None:
        self._job, self._chance = job, chance
        self._written, self._is_terminated = 0, False
        experiment = job.config.experiment
        self._total = experiment.num_intervals
        rate, epochs = experiment.algorithm.learning_rate, experiment.algorithm.epochs
        self._diverges_after = (epochs + experiment.seed - 1) % self._total if rate > diverges_above else None
        self._silent_updates = (epochs + experiment.seed) % 3
        self._batch = experiment.batch_steps
        # Best at 1e-3, better with more epochs, and a little noise that is the seed's.
        self._goodness = -abs(math.log10(experiment.algorithm.learning_rate) + 3) + experiment.algorithm.epochs / 10
        self._goodness += (experiment.seed % 7) / 100
        job.run_dir.mkdir(parents=True, exist_ok=True)
        for name in ("metrics.jsonl", "digest.jsonl"):
            (job.run_dir / name).write_text("")

    def has_ended(self) -> bool:
        for _ in range(self._chance.randint(0, 3)):
            if self._written < self._total and not self._is_terminated and not self._has_diverged:
                self._write()
        if self._written == self._total:
            self._finish(interrupted=False)
        return self._written == self._total or self._is_terminated or self._has_diverged

    @property
    def _has_diverged(self) -> bool:
        return self._written == self._diverges_after

    def terminate(self) -> None:
        self._is_terminated = True

    def end(self) -> JobEnd:
        if self._has_diverged:
            return JobEnd("TrainingDiverged", f"a gradient of update {self._written} is not finite")
        return JobEnd("interrupted") if self._written < self._total else JobEnd(score=self._goodness)

    def _write(self) -> None:
        self._written += 1
        # At first no episode has ended, in some runs for longer than in others.
        mean_return = self._goodness * self._written if self._written > self._silent_updates else None
        metrics = {"step": self._written * self._batch, "rollout/ep_rew_mean": mean_return}
        link = Link(self._written - 1, self._digest(), "", {}, "")
        _append(self._job.run_dir / "metrics.jsonl", json.dumps(metrics))
        _append(self._job.run_dir / "digest.jsonl", link.to_json())

    def _digest(self) -> str:
        return f"{self._written}{self._goodness}".encode().hex()

    def _finish(self, interrupted: bool) -> None:
        steps = self._written * self._batch
        result = RunResult(self._job.run_dir, steps, self._written, self._digest(), 1.0, 1.0, 1.0, interrupted)
        RunFolder(self._job.run_dir).save_result(result)


def launcher(seed: int, kill_after: int | None = None, diverges_above: float = math.inf) -> Launch:
    """A way to run jobs whose timing follows from a seed; raises Killed at one of its starts.

    Runs with a larger learning rate than `diverges_above` diverge, after so many updates as follow from their settings.
    """
    chance, started = random.Random(seed), list[Path]()

    def launch(job: TrainJob) -> PretendedRun:
        started.append(job.run_dir)
        if kill_after is not None and len(started) > kill_after:
            raise Killed
        return PretendedRun(job, chance, diverges_above)

    return launch


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")
