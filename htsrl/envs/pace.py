"""How fast an environment steps, and whether it computes or waits meanwhile, for those who share out cores."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium

from htsrl.envs.random_play import random_play

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
TIMED_STEPS = 16
LONGEST_LOOK_SECONDS = 0.25
NETWORK_SECONDS = {"images": 1e-3, "vectors": 4e-5}
"""About what networks take for a step of inference and learning, by what they see. Where the environment takes longer,
a second process for environments is worth more than larger batches and a core for the learner."""
SHORTEST_WAIT_SECONDS = 2e-3
"""Below that, what a thread takes to wake up begins to count, and who waits is hard to tell."""
COMPUTES_FROM = 0.25
"""An environment that spends less of its steps computing waits."""
NAP_SECONDS, CALIBRATION_NAPS = 2e-4, 20
FEWEST_NAPS = 0.3
"""Of those that a bystander takes where nobody keeps it from waking."""


@dataclass(frozen=True)
class Pace:
    """Of usual steps."""

    step_seconds: float
    cpu_share: float
    """How much of their time this process spent computing."""

    def is_slow(self, sees: Literal["images", "vectors"]) -> bool:
        """Whether its steps take longer than its networks."""
        return self.step_seconds >= NETWORK_SECONDS[sees]

    @property
    def waits(self) -> bool:
        return self.step_seconds >= SHORTEST_WAIT_SECONDS and self.cpu_share < COMPUTES_FROM


def pace_of(env: gymnasium.Env[Any, Any]) -> Pace | None:
    """None for what cannot be played, which is left to the run to complain of."""
    try:
        steps = _steps_by(env, time.perf_counter, time.process_time)
    except Exception:
        return None
    seconds = [step[0] for step in steps]
    return Pace(statistics.median(seconds), sum(step[1] for step in steps) / max(sum(seconds), 1e-9))


def lets_others_run(make_env: MakeEnv) -> bool:
    """Whether an environment can live on a thread, and while it steps there this one runs as if it were alone."""
    naps_in_steps: list[float] = []
    naps = 0

    def play() -> None:
        try:
            env = make_env()
            steps = _steps_by(env, time.perf_counter, lambda: naps)
            env.close()
        except Exception:
            return  # left to the run to complain of
        naps_in_steps.append(sum(step[1] for step in steps) / max(sum(step[0] for step in steps), 1e-9))

    undisturbed = _naps_per_second()
    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    while thread.is_alive():
        time.sleep(NAP_SECONDS)
        naps += 1
    return bool(naps_in_steps) and naps_in_steps[0] >= FEWEST_NAPS * undisturbed


def _steps_by(env: gymnasium.Env[Any, Any], *clocks: Callable[[], float]) -> list[tuple[float, ...]]:
    """How far each clock went in each of a few steps."""
    steps: list[tuple[float, ...]] = []
    begin, before, was_step = time.perf_counter(), tuple(clock() for clock in clocks), False
    for call in random_play(env, TIMED_STEPS):
        after = tuple(clock() for clock in clocks)
        if was_step:
            steps.append(tuple(late - early for early, late in zip(before, after, strict=True)))
        if steps and time.perf_counter() - begin > LONGEST_LOOK_SECONDS:
            break
        was_step, before = call.startswith("step"), tuple(clock() for clock in clocks)
    return steps


def _naps_per_second() -> float:
    begin = time.perf_counter()
    for _ in range(CALIBRATION_NAPS):
        time.sleep(NAP_SECONDS)
    return CALIBRATION_NAPS / (time.perf_counter() - begin)
