"""The paper's two claims as functions: how fast a barrier lets environments run, how stale asynchronous data get.

High-Throughput Synchronous Deep RL, https://arxiv.org/abs/2012.09849, claims 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from htsrl.errors import ConfigError

GRID_POINTS = 20_001
TAIL_DEVIATIONS = 12.0
"""Beyond so many standard deviations (and a margin for small shapes) even the slowest of many is never found."""
TAIL_MARGIN = 50.0


@dataclass(frozen=True)
class StepTime:
    """How long an environment's step takes: gamma distributed, with cv = standard deviation over mean.

    cv=1 is the exponential law, cv=0 a constant.
    """

    mean_seconds: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.mean_seconds < math.inf):
            raise ConfigError(f"mean_seconds={self.mean_seconds} must be above 0")
        if not (0 <= self.cv < math.inf):
            raise ConfigError(f"cv={self.cv} must not be negative; 1 is the exponential law, 0 a constant")


@dataclass(frozen=True)
class Barrier:
    """So many environments meet after every so many steps of each; an actor's answer takes `actor_seconds` a step."""

    num_envs: int
    sync_interval: int
    actor_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_envs", "sync_interval"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        if self.actor_seconds < 0:
            raise ConfigError(f"actor_seconds={self.actor_seconds} must not be negative")


def expected_seconds(total_steps: int, barrier: Barrier, step_time: StepTime) -> float:
    """Claim 1: `K/(n alpha) E[max of n intervals] + K c/n`, for K steps of all environments together."""
    intervals = total_steps / (barrier.num_envs * barrier.sync_interval)
    acting = total_steps * barrier.actor_seconds / barrier.num_envs
    return intervals * slowest_interval_seconds(barrier, step_time) + acting


def bound_steps_per_second(barrier: Barrier, step_time: StepTime) -> float:
    """Claim 1 as a speed, of all environments together."""
    steps = barrier.num_envs * barrier.sync_interval
    return steps / expected_seconds(steps, barrier, step_time)


def free_steps_per_second(num_envs: int, step_time: StepTime) -> float:
    """The speed of environments that never wait for each other."""
    return num_envs / step_time.mean_seconds


def slowest_interval_seconds(barrier: Barrier, step_time: StepTime) -> float:
    """How long the slowest of n environments takes for its alpha steps, on average."""
    if step_time.cv == 0:
        return barrier.sync_interval * step_time.mean_seconds
    # A sum of gamma variables of one scale is a gamma variable, and shapes add up.
    shape_per_step = 1 / step_time.cv**2
    scale = step_time.mean_seconds / shape_per_step
    return scale * expected_gamma_maximum(barrier.num_envs, barrier.sync_interval * shape_per_step)


def expected_gamma_maximum(count: int, shape: float) -> float:
    """The mean of the largest of `count` Gamma(shape, 1) variables: the integral of 1 - F(x)**count from 0 on."""
    import torch

    # Points x = upper * u**3 crowd near 0, where F is steep for small shapes.
    u = np.linspace(0.0, 1.0, GRID_POINTS)
    upper = shape + TAIL_DEVIATIONS * math.sqrt(shape) + TAIL_MARGIN
    x = torch.from_numpy(upper * u**3)
    distribution = torch.special.gammainc(torch.full_like(x, shape), x).numpy()
    return float(np.trapezoid((1 - distribution**count) * 3 * upper * u**2, u))


def expected_lag(num_actors: int, load_per_actor: float) -> float:
    """Claim 2: updates between an asynchronous actor's data and the learner's use of them, `n rho / (1 - n rho)`.

    `load_per_actor` is an actor's rate of data over the learner's rate of updates. At full load the lag has no bound.
    """
    if num_actors < 1 or load_per_actor < 0:
        raise ConfigError(f"num_actors={num_actors} and load_per_actor={load_per_actor} describe no queue")
    load = num_actors * load_per_actor
    return load / (1 - load) if load < 1 else math.inf
