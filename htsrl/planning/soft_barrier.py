"""How long environments take under htsrl's own barrier, which is softer than the one of Claim 1: by simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.check.claims import Barrier, StepTime

Floats = NDArray[np.float64]
INTERVALS = 200


def hts_seconds(interval_seconds: Floats) -> float:
    """When the last environment ends its last rollout, from the time that each needs for each: [rollout, environment].

    An environment begins rollout j once it has ended its rollout j-1 and version j-1 is published, which takes all
    environments' rollout j-2. So nobody waits until somebody is a whole interval behind.
    """
    ended = np.zeros(interval_seconds.shape[1])
    all_ended_before = 0.0
    for rollout in interval_seconds:
        may_begin, all_ended_before = all_ended_before, float(ended.max())
        ended = np.maximum(ended, may_begin) + rollout
    return float(ended.max())


def soft_interval_seconds(barrier: Barrier, step_time: StepTime) -> float:
    """The mean time from one barrier to the next, with learning that takes no time."""
    if step_time.cv == 0:
        return barrier.sync_interval * step_time.mean_seconds
    # A sum of gamma variables of one scale is a gamma variable, and shapes add up.
    shape_per_step = 1 / step_time.cv**2
    shape, scale = barrier.sync_interval * shape_per_step, step_time.mean_seconds / shape_per_step
    drawn = np.random.default_rng(0).gamma(shape, scale, (INTERVALS, barrier.num_envs))
    return hts_seconds(drawn) / INTERVALS
