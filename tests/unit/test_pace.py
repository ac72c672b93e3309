"""How fast an environment steps, whether it waits, and who steps it therefore."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from htsrl import Config, ConfigError, Experiment, Placement
from htsrl.config import MOST_ENVS_ON_THREADS, available_cores
from htsrl.config_check import check
from htsrl.envs.pace import Pace, lets_others_run, pace_of
from htsrl.numerics import single_threaded
from htsrl.survey import draw_blueprint


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def wait_with_the_interpreter_locked(seconds: float) -> None:
    """As a simulator may that was not written with threads in mind."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


class Paced(gymnasium.Env[Any, Any]):
    """Steps for so long, and resets for ever so much longer."""

    action_space = spaces.Discrete(2)

    spend: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, step_seconds: float = 0.0, shows_images: bool = False) -> None:
        self.step_seconds = step_seconds
        image, vector = spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Box(-1.0, 1.0, (2,))
        self.observation_space: spaces.Box[Any] = image if shows_images else vector
        self._seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        time.sleep(0.02)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.step_seconds:
            self.spend(self.step_seconds)
        return self._seen, 0.0, False, False, {}


class Computing(Paced):
    """Takes a core for its steps."""

    spend = staticmethod(compute)


class Locking(Paced):
    """Waits, and lets nobody else run."""

    spend = staticmethod(wait_with_the_interpreter_locked)


class Attached(Paced):
    """Lives on the main thread only."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        super().__init__(step_seconds)
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signal only works in main thread of the main interpreter")


def pace(step_seconds: float) -> Pace:
    found = pace_of(Paced(step_seconds))
    assert found is not None
    return found


def test_only_steps_count() -> None:
    assert not pace(0.0).is_slow("images")
    assert pace(0.003).is_slow("images")


def test_vectors_are_learned_from_in_less_time_than_images() -> None:
    assert not pace(0.0001).is_slow("images")
    assert pace(0.0001).is_slow("vectors")


def test_a_very_slow_one_is_not_looked_at_for_long() -> None:
    start = time.monotonic()
    assert pace(0.3).is_slow("images")
    assert time.monotonic() - start < 3 * 0.3 + 0.5


@pytest.mark.parametrize(
    ("schedule", "step_seconds", "shows_images", "leaves_a_core"),
    [
        ("hts", 0.0, True, True),
        ("hts", 0.003, True, False),
        ("hts", 0.0, False, True),
        ("hts", 0.0001, False, False),
        ("sync", 0.0, True, False),
        ("async", 0.0, True, True),
    ],
)
def test_executors_leave_the_learner_a_core_where_it_works_meanwhile_and_takes_longer_than_a_step(
    schedule: Any, step_seconds: float, shows_images: bool, leaves_a_core: bool
) -> None:
    env_args = {"step_seconds": step_seconds, "shows_images": shows_images}
    experiment = Experiment(Computing, env_args=env_args, schedule=schedule, num_envs=64)
    with single_threaded():
        blueprint = draw_blueprint(Config(experiment, Placement()))
    assert len(blueprint.executor_envs) == max(available_cores() - leaves_a_core, 1)


def test_one_that_sleeps_waits_and_one_that_computes_does_not() -> None:
    assert pace(0.003).waits
    assert not pace(0.0001).waits, "too short for threads"
    computing = pace_of(Computing(0.003))
    assert computing is not None
    assert not computing.waits


def test_only_one_that_can_live_on_a_thread_and_leaves_others_alone_lets_others_run() -> None:
    assert lets_others_run(lambda: Paced(0.006))
    assert not lets_others_run(lambda: Locking(0.006))
    assert not lets_others_run(lambda: Attached(0.006))


@pytest.mark.parametrize(
    ("env", "placement", "on_threads"),
    [
        (Paced, Placement(), True),
        (Computing, Placement(), False),
        (Locking, Placement(), False),
        (Attached, Placement(), False),
        (Paced, Placement(num_executors=2), False),
        (Paced, Placement(executor_threads=False), False),
        (Paced, Placement("inline"), False),
        (Computing, Placement(executor_threads=True), True),
    ],
)
def test_environments_that_wait_step_on_threads_unless_told_otherwise(
    env: type[Paced], placement: Placement, on_threads: bool
) -> None:
    with single_threaded():
        blueprint = draw_blueprint(Config(Experiment(env, env_args={"step_seconds": 0.006}, num_envs=8), placement))
    assert blueprint.on_threads is on_threads
    if on_threads:
        assert len(blueprint.executor_envs) == 1
        assert not blueprint.acts_for_itself, "an actor would wait for the interpreter's lock at every operation"


def test_more_environments_than_one_process_should_have_threads_are_not_stepped_on_them() -> None:
    most = MOST_ENVS_ON_THREADS
    experiment = Experiment(Paced, env_args={"step_seconds": 0.003}, num_envs=most + 1, sync_interval=16)
    with single_threaded():
        assert not draw_blueprint(Config(experiment, Placement())).on_threads
    with pytest.raises(ConfigError, match=f"num_envs={most + 1} on threads of one process .* use {most} or fewer"):
        check(Config(experiment, Placement(executor_threads=True)))
