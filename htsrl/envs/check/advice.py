"""What measured times mean for a run: the wait at the barrier (Claim 1), executors and the sync interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from htsrl.config import Placement
from htsrl.envs.check.claims import Barrier, StepTime, slowest_interval_seconds
from htsrl.envs.check.timing import Spread, StepTimes, shown_seconds
from htsrl.envs.pace import NETWORK_SECONDS

NUM_ENVS = 16
SYNC_INTERVALS = (1, 5, 20, 128)
SMALL_LOSS = 0.1
COMPUTES_FROM = 0.5
"""An environment that spends less of its steps computing waits: for a clock, a network or another process."""


@dataclass(frozen=True)
class BarrierLoss:
    """What meeting after every `sync_interval` steps costs environments that run side by side."""

    sync_interval: int
    slowest_seconds: float
    """How long the slowest takes for an interval, on average."""
    mean_seconds: float
    """How long one takes for an interval, on average; the difference is spent waiting."""

    @property
    def share(self) -> float:
        return 1 - self.mean_seconds / self.slowest_seconds


def barrier_losses(times: StepTimes, num_executors: int = NUM_ENVS) -> list[BarrierLoss]:
    """Claim 1 with gamma distributed times of the measured mean and cv; executors step their environments in turn."""
    turn = Spread.of(times.turn_seconds)
    law = StepTime(max(turn.mean, 1e-9), turn.cv)
    envs_each = math.ceil(NUM_ENVS / num_executors)
    barriers = [(interval, Barrier(num_executors, interval * envs_each)) for interval in SYNC_INTERVALS]
    return [
        BarrierLoss(interval, slowest_interval_seconds(barrier, law), barrier.sync_interval * law.mean_seconds)
        for interval, barrier in barriers
    ]


def barrier_lines(times: StepTimes) -> list[str]:
    """A table of the above."""
    header = f"{NUM_ENVS} environments side by side, each with a core of its own or asleep (Claim 1)"
    lines = [header, f"{'sync interval':>15} {'one takes':>10} {'slowest':>10} {'lost at the barrier':>20}"]
    for loss in barrier_losses(times):
        seconds = f"{shown_seconds(loss.mean_seconds):>10} {shown_seconds(loss.slowest_seconds):>10}"
        lines.append(f"{loss.sync_interval:>15} {seconds} {loss.share:>20.0%}")
    return lines


def advised_executors(times: StepTimes) -> int:
    """Who computes needs a core, beside the learner's where a run leaves it one; who waits needs none."""
    if times.cpu_share < COMPUTES_FROM:
        return NUM_ENVS
    return Placement().resolved_executors(NUM_ENVS, leave_a_core=_usual_step(times) < NETWORK_SECONDS["vectors"])


def _usual_step(times: StepTimes) -> float:
    return float(np.median(times.step_seconds)) if len(times.step_seconds) else 0.0


def _learners_core(times: StepTimes) -> str:
    """When `htsrl train` leaves the learner a core, as far as times can tell."""
    step, leaving = _usual_step(times), Placement().resolved_executors(NUM_ENVS, leave_a_core=True)
    if step < NETWORK_SECONDS["vectors"]:
        return "the default where the learner works at the same time, for its networks take longer than a step"
    if step < NETWORK_SECONDS["images"]:
        return f"the default ({leaving} where observations are images and the learner works at the same time)"
    return "the default"


def executors_advice(times: StepTimes) -> str:
    computes, num_executors = f"a step computes for {times.cpu_share:.0%} of its time", advised_executors(times)
    if times.cpu_share >= COMPUTES_FROM:
        return (
            f"{computes}, so executors need cores: --num-executors {num_executors} here, {_learners_core(times)}; "
            "more would only queue for the cores"
        )
    return (
        f"{computes} and waits for the rest (a clock, or another process), so let all wait at once: on threads, which "
        "a run chooses by itself where environments can share a process, or with an executor for each, "
        f"--num-executors {num_executors} for --num-envs {NUM_ENVS}"
    )


def sync_interval_advice(times: StepTimes) -> str:
    num_executors = advised_executors(times)
    losses = barrier_losses(times, num_executors)
    shares = ", ".join(f"{loss.share:.0%} with --sync-interval {loss.sync_interval}" for loss in losses)
    small = [loss.sync_interval for loss in losses if loss.share <= SMALL_LOSS]
    advice = f"use {small[0]} or more" if small else f"use {SYNC_INTERVALS[-1]} or even more"
    return f"{num_executors} executors of {NUM_ENVS} environments lose at the barrier {shares}; {advice}"
