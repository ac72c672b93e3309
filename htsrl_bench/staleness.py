"""What a limit on staleness throws away: episodes that take long, and so are not like the others.

A simulation of asynchronous training that learns from whole episodes, as systems for agents and language models do.
Environments play episode after episode, whose lengths have a heavy tail; the learner makes a version from every
`batch_steps` steps that it is given; an episode that began more than so many versions ago is discarded when it ends. So
what is learned from is shorter than what is played, and the longest episodes, which may be those that matter, never
count. Under HTS a rollout is a number of steps: an episode that is unfinished at a barrier continues in the next
rollout, with the version that acted written beside every step, and none is discarded.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.errors import ConfigError
from htsrl_bench.record import Table


@dataclass(frozen=True)
class StalenessBench:
    """What is simulated."""

    num_envs: int = 1024
    mean_length: float = 100.0
    shape: float = 1.5
    """Of the Pareto law: 2 and less has no variance."""
    batch_steps: int = 20_480
    limits: tuple[int, ...] = (1, 2, 4, 8)
    """Versions that an episode may be old."""
    episodes: int = 100_000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.batch_steps < 1 or self.episodes < 1 or not self.limits or min(self.limits) < 0:
            raise ConfigError("num_envs, batch_steps and episodes must be at least 1, and limits 0 or more")
        if not (self.shape > 1 and self.mean_length >= 1):
            raise ConfigError(f"shape={self.shape} must be above 1, else there is no mean, and mean_length at least 1")


@dataclass(frozen=True)
class Outcome:
    """Of one way to train, over the same episodes."""

    name: str
    discarded_steps: float
    """Share of all steps."""
    discarded_episodes: float
    mean_length: float
    """Of the episodes that were learned from."""
    bias: float
    """That over the mean of all, less 1."""
    longest: int


def lengths(bench: StalenessBench) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of all episodes, in the order in which they begin."""
    generator = np.random.default_rng(bench.seed)
    smallest = bench.mean_length * (bench.shape - 1) / bench.shape
    drawn = smallest * (1 + generator.pareto(bench.shape, bench.episodes))
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def simulate(bench: StalenessBench, limit: int | None, episode_lengths: Sequence[int]) -> Outcome:
    """Environments take a step each per unit of time; a limit of None keeps everything, as HTS does.

    It ends when there is no further episode to begin: those under way count nowhere, whatever the limit.
    """
    kept, discarded, learned, version = list[int](), list[int](), 0, 0
    ending: list[tuple[int, int, int, int]] = []  # when, which environment, its episode's length, version it began at
    waiting = iter(episode_lengths)
    for env in range(bench.num_envs):
        if (length := next(waiting, None)) is not None:
            heapq.heappush(ending, (int(length), env, int(length), 0))
    while ending:
        now, env, length, began = heapq.heappop(ending)
        if limit is not None and version - began > limit:
            discarded.append(length)
        else:
            kept.append(length)
            learned += length
            version = learned // bench.batch_steps
        if (following := next(waiting, None)) is None:
            break
        heapq.heappush(ending, (now + int(following), env, int(following), version))
    played, mean = sum(kept) + sum(discarded), float(np.mean(kept + discarded))
    learned_mean = float(np.mean(kept)) if kept else 0.0
    return Outcome(
        name="HTS: carried over the barrier" if limit is None else f"asynchronous, at most {limit} versions old",
        discarded_steps=sum(discarded) / played,
        discarded_episodes=len(discarded) / (len(kept) + len(discarded)),
        mean_length=learned_mean,
        bias=learned_mean / mean - 1,
        longest=max(kept, default=0),
    )


def run(bench: StalenessBench) -> list[Outcome]:
    drawn = lengths(bench).tolist()
    return [simulate(bench, limit, drawn) for limit in (None, *bench.limits)]


def table(bench: StalenessBench, outcomes: Sequence[Outcome]) -> Table:
    rows = [
        [
            of.name,
            f"{of.discarded_steps:.1%}",
            f"{of.discarded_episodes:.2%}",
            f"{of.mean_length:.1f}",
            f"{of.bias:+.1%}",
            f"{of.longest:,}",
        ]
        for of in outcomes
    ]
    drawn = lengths(bench)
    return Table(
        ["way", "steps discarded", "episodes discarded", "mean length learned from", "bias", "longest learned from"],
        rows,
        [
            f"A simulation: {bench.num_envs:,} environments, {bench.episodes:,} episodes whose lengths are Pareto with "
            f"shape {bench.shape:g} (mean {drawn.mean():.1f}, longest {drawn.max():,}), a version from every "
            f"{bench.batch_steps:,} steps learned from. An episode's age is counted in versions from its beginning to "
            "its end. The same episodes in every row.",
        ],
    )


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {of.name: asdict(of) for of in outcomes}
