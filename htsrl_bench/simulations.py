"""The claims by simulation: the same quantities from drawn step times, with none of the formulas."""

from __future__ import annotations

import numpy as np

from htsrl.envs.check.claims import Barrier, StepTime
from htsrl.planning.soft_barrier import Floats, hts_seconds


def simulate_steps_per_second(barrier: Barrier, step_time: StepTime, num_intervals: int, seed: int = 0) -> float:
    """Claim 1: environments that all wait for the slowest after every interval."""
    intervals = _interval_seconds(barrier, step_time, num_intervals, seed)
    return _speed(barrier, float(intervals.max(axis=1).sum()), num_intervals)


def simulate_hts_steps_per_second(barrier: Barrier, step_time: StepTime, num_intervals: int, seed: int = 0) -> float:
    """htsrl's own barrier, with learning that takes no time."""
    intervals = _interval_seconds(barrier, step_time, num_intervals, seed)
    return _speed(barrier, hts_seconds(intervals), num_intervals)


def simulate_lag(num_actors: int, load_per_actor: float, updates_per_actor: int, seed: int = 0) -> float:
    """Claim 2: actors produce at random times, one learner takes the data in order, an update for each.

    The lag of data is the number of updates that the learner makes between their making and their own update.
    """
    generator = np.random.default_rng(seed)
    made_at = generator.exponential(1 / load_per_actor, (num_actors, updates_per_actor)).cumsum(axis=1)
    arrivals = np.sort(made_at[made_at < made_at[:, -1].min()])  # as long as all actors produce
    update_seconds = generator.exponential(1.0, len(arrivals))
    worked = update_seconds.cumsum()
    # An update ends after all the work since the learner was last idle.
    ends = worked + np.maximum.accumulate(arrivals - (worked - update_seconds))
    return float((np.arange(len(arrivals)) - np.searchsorted(ends, arrivals, side="right")).mean())


def _interval_seconds(barrier: Barrier, step_time: StepTime, num_intervals: int, seed: int) -> Floats:
    """How long each environment takes for each interval: [interval, environment]."""
    shape = (barrier.sync_interval, barrier.num_envs)
    if step_time.cv == 0:
        steps = np.full((num_intervals, *shape), step_time.mean_seconds)
        return np.asarray(steps.sum(axis=1)) + barrier.sync_interval * barrier.actor_seconds
    generator = np.random.default_rng(seed)
    shape_per_step = 1 / step_time.cv**2
    scale = step_time.mean_seconds / shape_per_step
    drawn = (generator.gamma(shape_per_step, scale, shape).sum(axis=0) for _ in range(num_intervals))
    return np.stack(list(drawn)) + barrier.sync_interval * barrier.actor_seconds


def _speed(barrier: Barrier, seconds: float, num_intervals: int) -> float:
    return num_intervals * barrier.sync_interval * barrier.num_envs / seconds
