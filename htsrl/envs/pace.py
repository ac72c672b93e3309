"""How fast an environment steps, and whether it computes or waits meanwhile, for those who share out cores."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import xxhash

from htsrl.envs.observing import Rows
from htsrl.envs.random_play import random_play

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
TIMED_STEPS = 16
MAX_LOOK_SECONDS = 0.25
NETWORK_SECONDS = {"images": 1e-3, "vectors": 4e-5}
"""About what networks take for a step of inference and learning, by what they see. Where the environment takes longer,
a second process for environments is worth more than larger batches and a core for the learner."""
MIN_WAIT_SECONDS = 2e-3
"""Below that, what a thread takes to wake up begins to count, and who waits is hard to tell."""
COMPUTES_FROM = 0.25
"""An environment that spends less of its steps computing waits."""
NAP_SECONDS, CALIBRATION_NAPS = 2e-4, 20
MIN_NAPS = 0.3
"""Of those that a bystander takes where nobody keeps it from waking."""


@dataclass(frozen=True)
class Pace:
    """Of usual steps."""

    step_seconds: float
    cpu_share: float
    """How much of their time this process spent computing."""
    look_seconds: float
    """How long it took to find out, with everything."""
    seen: tuple[int, ...]
    """A hash for each step of what came of it."""

    def is_slow(self, sees: Literal["images", "vectors"]) -> bool:
        """Whether its steps take longer than its networks."""
        return self.step_seconds >= NETWORK_SECONDS[sees]

    def waits_for_more_than(self, num_cores: int, num_envs: int) -> bool:
        """Whether more of so many environments could wait, on threads, than there are cores to step them in turn."""
        is_long = self.step_seconds >= MIN_WAIT_SECONDS
        at_once = min(num_envs, 1 / max(self.cpu_share, 1e-9))  # what computes may keep the others from it
        return is_long and self.cpu_share < COMPUTES_FROM and at_once > num_cores


def pace_of(env: gymnasium.Env[Any, Any]) -> Pace | None:
    """None for what cannot be played, which is left to the run to complain of."""
    begin = time.perf_counter()
    try:
        played = _play(env, time.process_time)
    except Exception:
        return None
    look_seconds = time.perf_counter() - begin
    return Pace(statistics.median(played.step_seconds), played.per_second, look_seconds, tuple(played.seen))


def can_share_process(make_env: MakeEnv, alone: Pace, most_seconds: float) -> bool:
    """Whether environments can live on threads: two are played at once, one of which sees what it saw `alone`, and
    this thread runs meanwhile as if there were nobody else. Those who take longer than `most_seconds` do not."""
    naps = 0

    def play(seed: int) -> None:
        try:
            env = make_env()
            found[seed] = _play(env, lambda: naps, seed)
            env.close()
        except Exception:
            pass  # left to the run to complain of

    found: dict[int, Played] = {}
    undisturbed = _naps_per_second()
    threads = [threading.Thread(target=play, args=(seed,), daemon=True) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    deadline = time.perf_counter() + most_seconds
    while any(thread.is_alive() for thread in threads) and time.perf_counter() < deadline:
        time.sleep(NAP_SECONDS)
        naps += 1
    if len(found) < len(threads):
        return False
    saw_the_same = all(ours == theirs for ours, theirs in zip(found[0].seen, alone.seen, strict=False))
    return saw_the_same and all(played.per_second >= MIN_NAPS * undisturbed for played in found.values())


@dataclass
class Played:
    """A few steps by the clock, and by another."""

    step_seconds: list[float]
    per_second: float
    """How far the other clock went in a second of steps."""
    seen: list[int]


def _play(env: gymnasium.Env[Any, Any], clock: Callable[[], float], seed: int = 0) -> Played:
    clocks = (time.perf_counter, clock)
    steps: list[tuple[float, float]] = []
    seen: list[int] = []

    def record(rows: Rows, rewards: Any) -> None:
        hasher = xxhash.xxh3_64()
        for array in (*rows.values(), np.asarray(rewards)):
            hasher.update(np.ascontiguousarray(array).tobytes())
        seen.append(hasher.intdigest())

    begin, was_step = time.perf_counter(), False
    before = [read() for read in clocks]
    for call in random_play(env, TIMED_STEPS, seed, record):
        seconds, other = (read() - early for read, early in zip(clocks, before, strict=True))
        if was_step:
            steps.append((seconds, other))
        if steps and time.perf_counter() - begin > MAX_LOOK_SECONDS:
            break
        was_step, before = call.startswith("step"), [read() for read in clocks]
    all_seconds, all_other = (sum(part) for part in zip(*steps, strict=True))
    return Played([seconds for seconds, _ in steps], all_other / max(all_seconds, 1e-9), seen)


def _naps_per_second() -> float:
    begin = time.perf_counter()
    for _ in range(CALIBRATION_NAPS):
        time.sleep(NAP_SECONDS)
    return CALIBRATION_NAPS / (time.perf_counter() - begin)
