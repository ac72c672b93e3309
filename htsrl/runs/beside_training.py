"""Evaluation beside training: which versions, what becomes of what is found, and when it ends the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from htsrl.checkpoint.snapshots import is_due, snapshot_file, snapshots_in, snapshots_left, write_snapshot
from htsrl.config import Config
from htsrl.errors import StopRequested
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.report import UpdateReport
from htsrl.runs.evaluations import EvaluationRecord
from htsrl.runs.evaluator import Answer, EvaluationJob, Evaluator
from htsrl.runs.folder import RunFolder
from htsrl.runs.play import Episodes, EvaluationPlan
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from torch import nn

USUAL_EPISODES = 10
SEED = 0
"""The same episodes as `htsrl eval` plays unless told otherwise."""


@dataclass(frozen=True)
class EvaluationListeners:
    """Who hears of evaluations."""

    say: Callable[[str], None]
    on_evaluation: Callable[[Evaluation, dict[str, float]], None]
    """With its metrics."""


class BesideTraining:
    """All calls come from the run's main thread; none of them waits but `finish`."""

    def __init__(self, config: Config, interface: Interface, folder: RunFolder, listeners: EvaluationListeners) -> None:
        experiment, placement = config.experiment, config.placement
        assert placement.eval_every is not None
        self._folder = folder
        self._listeners = listeners
        self._every_steps, self._batch_steps = placement.eval_every, experiment.batch_steps
        self._goal, self._held = placement.stop_at_eval_return, placement.eval_goal_held
        episodes = Episodes(
            placement.eval_episodes or USUAL_EPISODES, SEED, seats=placement.eval_envs, log_info=placement.log_info
        )
        plan = EvaluationPlan(experiment, interface, episodes)
        self._evaluator = Evaluator(plan, placement.deadline_seconds)
        self.record = EvaluationRecord(folder, listeners.say)
        self.num_episodes = episodes.number
        self.skipped = self.failed = 0
        self._newest = 0  # of the versions that were due, offered or not
        self._has_stopped = False

    def begin(self, version: int) -> None:
        """A run that is resumed from this version: of the snapshots that were never evaluated, the newest is."""
        left = snapshots_left(self._folder.path)
        newest = max((v for v in left if v < version and v not in self.record.versions), default=None)
        for other in left - {newest}:
            snapshot_file(self._folder.path, other).unlink(missing_ok=True)
        if newest is not None:
            self._offer(newest)

    def goal_is_held(self, version: int) -> bool:
        """By the evaluations up to this version."""
        return self.record.holds(self._goal, self._held, version)

    @property
    def goal_text(self) -> str:
        times = "the last evaluation" if self._held == 1 else f"the last {self._held} evaluations"
        return f"{times} reached stop_at_eval_return={self._goal:g}"

    def summary(self, version: int) -> dict[str, Any]:
        """What the result of a run that ended with this version says, by its own names."""
        record = self.record
        past = [one for one in record.past if one.version <= version]
        return {
            "evaluations": len(past),
            "evaluations_skipped": self.skipped,
            "evaluations_failed": self.failed,
            "eval_return": past[-1].mean_return if past else None,
            "best_eval_return": record.best_return,
            "best_eval_version": record.best_version,
            "eval_goal_reached": self.goal_is_held(version),
        }

    def after_update(self, report: UpdateReport) -> None:
        """Take what was found; raises StopRequested once the goal is held."""
        # Of the version before: the learner writes it down when it begins the update that this report is of.
        version = report.version - 1
        if version > self._newest and self._is_due(version):
            self._newest = version
            self._offer(version)
        self._take_answers()
        if not self._has_stopped and self.goal_is_held(report.version):
            self._has_stopped = True
            raise StopRequested(self.goal_text)

    def finish(self, version: int, policy: nn.Module, watch: Callable[[int, int], None]) -> None:
        """Evaluate the version that the run ended with, and wait for it; a KeyboardInterrupt ends only that."""
        if version > 0 and version not in self.record.versions:
            try:
                write_snapshot(snapshot_file(self._folder.path, version), policy, version)
            except OSError:
                pass  # it is missed, like any other
            self._wait_until_idle(watch)  # the one before is not skipped for the last
            self._offer(version)
        self._wait_until_idle(watch)

    def close(self, will_go_on: bool = False) -> None:
        """Of a run that will continue, snapshots are left for when it does."""
        self._evaluator.close()
        self._take_answers()
        self.record.close()
        if not will_go_on:
            shutil.rmtree(snapshots_in(self._folder.path), ignore_errors=True)

    def _wait_until_idle(self, watch: Callable[[int, int], None]) -> None:
        while not self._evaluator.is_idle:
            self._evaluator.wait()
            watch(*self._evaluator.progress)
        self._take_answers()

    def _is_due(self, version: int) -> bool:
        return is_due(version, self._batch_steps, self._every_steps)

    def _offer(self, version: int) -> None:
        snapshot = snapshot_file(self._folder.path, version)
        job = EvaluationJob(version, version * self._batch_steps, snapshot)
        if version in self.record.versions:
            snapshot.unlink(missing_ok=True)
        elif not snapshot.is_file():
            self._count_failure(f"there is no snapshot of version {version}, perhaps the disk is full")
        elif (skipped := self._evaluator.offer(job)) is not None:
            self.skipped += 1
            skipped.snapshot.unlink(missing_ok=True)
            if self.skipped == 1:
                self._listeners.say(
                    f"evaluations take longer than the {self._every_steps:,} steps between them: version "
                    f"{skipped.version} is skipped, others are counted; a larger --eval-every or fewer episodes help"
                )

    def _take_answers(self) -> None:
        for answer in self._evaluator.answers():
            self._take(answer)
            answer.job.snapshot.unlink(missing_ok=True)

    def _take(self, answer: Answer) -> None:
        if answer.evaluation is None:
            self._count_failure(f"version {answer.job.version} could not be evaluated: {answer.problem}")
            return
        metrics = self.record.add(answer.evaluation, SEED, answer.seconds, answer.cpu_seconds)
        self._listeners.on_evaluation(answer.evaluation, metrics)

    def _count_failure(self, why: str) -> None:
        self.failed += 1
        if self.failed == 1:
            self._listeners.say(f"warning: {why}; training continues, and others like it are counted")
