"""How fast an environment steps, whether it waits, and who steps it therefore."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from htsrl import Config, ConfigError, Experiment, Placement
from htsrl.config import MAX_ENVS_ON_THREADS, available_cores
from htsrl.config.check import check
from htsrl.envs.pace import Pace, can_share_process, pace_of
from htsrl.numerics import single_threaded
from htsrl.placements import survey
from htsrl.placements.survey import draw_blueprint

STUCK_SECONDS = 60.0


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def wait_with_the_interpreter_locked(seconds: float) -> None:
    """As a simulator may that was not written with threads in mind."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


class Paced(gymnasium.Env[Any, Any]):
    """Steps for so long, and resets for longer."""

    action_space = spaces.Discrete(2)

    spend: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(self, step_seconds: float = 0.0, shows_images: bool = False) -> None:
        self.step_seconds = step_seconds
        image, vector = spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Box(-1.0, 1.0, (2,))
        self.observation_space: spaces.Box[Any] = image if shows_images else vector
        self._seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.spend(0.02)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
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


class Stuck(Paced):
    """Waits for the main thread for ever, as a window's events may."""

    freed = threading.Event()
    was_freed: bool | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if threading.current_thread() is not threading.main_thread():
            Stuck.was_freed = self.freed.wait(STUCK_SECONDS)
        return super().reset(seed=seed)


class Meddling(Paced):
    """Has its state where all others have theirs, as a client that a module shares."""

    state = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(seed=seed)
        self._own = float(self.np_random.uniform())
        return seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Meddling.state = self._own
        seen, *rest = super().step(action)
        return np.full_like(seen, Meddling.state), *rest


class Clock:
    """Stands for the module `time`; it goes on when somebody sleeps or computes, however busy the machine is."""

    def __init__(self) -> None:
        self._now = self._computed = 0.0

    def perf_counter(self) -> float:
        return self._now

    def process_time(self) -> float:
        return self._computed

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def compute(self, seconds: float) -> None:
        self._now += seconds
        self._computed += seconds


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("htsrl.envs.pace.time", clock)
    monkeypatch.setattr(Paced, "spend", staticmethod(clock.sleep))
    monkeypatch.setattr(Computing, "spend", staticmethod(clock.compute))


def pace(step_seconds: float) -> Pace:
    found = pace_of(Paced(step_seconds))
    assert found is not None
    return found


@pytest.mark.usefixtures("own_clock")
def test_only_steps_count() -> None:
    assert not pace(0.0).is_slow("images")
    assert pace(0.003).is_slow("images")


@pytest.mark.usefixtures("own_clock")
def test_vectors_are_learned_from_in_less_time_than_images() -> None:
    assert not pace(0.0001).is_slow("images")
    assert pace(0.0001).is_slow("vectors")


@pytest.mark.usefixtures("own_clock")
def test_a_very_slow_one_is_not_looked_at_for_long() -> None:
    env = Paced(0.3)
    found = pace_of(env)
    assert found is not None
    assert found.is_slow("images")
    assert env.num_steps <= 2


@pytest.mark.usefixtures("own_clock")
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


@pytest.mark.parametrize(
    ("step_seconds", "cpu_share", "num_envs", "pays"),
    [
        (0.005, 0.01, 16, True),
        (0.001, 0.01, 16, False),  # too short to tell
        (0.005, 0.5, 16, False),  # computes
        (0.005, 0.01, 4, False),  # a core each
        (0.005, 0.2, 16, True),  # five at once
        (0.005, 0.24, 5, True),
    ],
)
def test_threads_pay_where_more_can_wait_at_once_than_there_are_cores(
    step_seconds: float, cpu_share: float, num_envs: int, pays: bool
) -> None:
    found = Pace(step_seconds, cpu_share, look_seconds=0.1, seen=())
    assert found.waits_for_more_than(4, num_envs) is pays


def bears_another(env: Callable[[], Paced]) -> bool:
    alone = pace_of(env())
    assert alone is not None
    return can_share_process(env, alone, most_seconds=60.0)


# Of 30 ms a step: one that locks others out lets them nap 30 times a second, where a loaded machine does it 200 times.


def test_environments_bear_one_another_unless_they_lock_others_out_or_cannot_live_on_a_thread() -> None:
    assert any(bears_another(lambda: Paced(0.03)) for _ in range(3)), "unless others have all cores three times"
    assert not bears_another(lambda: Locking(0.03))
    assert not bears_another(lambda: Attached(0.03))


def test_environments_that_meddle_with_one_another_are_found_out() -> None:
    assert not bears_another(lambda: Meddling(0.03))


def test_an_environment_that_hangs_on_a_thread_is_not_waited_for() -> None:
    alone = Pace(0.006, 0.01, look_seconds=0.1, seen=())
    assert not can_share_process(lambda: Stuck(0.006), alone, most_seconds=0.5)
    assert Stuck.was_freed is None, "it hangs still"
    Stuck.freed.set()


@pytest.mark.parametrize(
    ("env", "placement", "on_threads"),
    [
        (Paced, Placement(), True),
        (Computing, Placement(), False),
        (Locking, Placement(), False),
        (Paced, Placement(num_executors=2), False),
        (Paced, Placement(executor_threads=False), False),
        (Paced, Placement("inline"), False),
        (Computing, Placement(executor_threads=True), True),
    ],
)
def test_environments_that_wait_step_on_threads_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, env: type[Paced], placement: Placement, on_threads: bool
) -> None:
    found = Pace(0.006, cpu_share=1.0 if env is Computing else 0.01, look_seconds=0.1, seen=())
    monkeypatch.setattr(survey, "pace_of", lambda env: found)
    monkeypatch.setattr(survey, "can_share_process", lambda make, alone, most_seconds: env is not Locking)
    with single_threaded():
        blueprint = draw_blueprint(Config(Experiment(env, env_args={"step_seconds": 0.006}, num_envs=32), placement))
    assert blueprint.on_threads is on_threads
    if on_threads:
        assert len(blueprint.executor_envs) == 1
        assert not blueprint.acts_for_itself, "an actor would wait for the interpreter's lock at every operation"


def test_more_environments_than_threads_should_be_are_not_stepped_on_them() -> None:
    most = MAX_ENVS_ON_THREADS
    experiment = Experiment(Paced, env_args={"step_seconds": 0.003}, num_envs=most + 1, sync_interval=16)
    with single_threaded():
        assert not draw_blueprint(Config(experiment, Placement())).on_threads
    with pytest.raises(ConfigError, match=f"num_envs={most + 1} is more than one run can have on threads; use {most}"):
        check(Config(experiment, Placement(executor_threads=True)))
    few = Config(replace(experiment, num_envs=128), Placement(num_executors=1, executor_threads=True))
    with pytest.raises(ConfigError, match=r"num_envs=128 on threads of num_executors=1 .* use num_executors=2 or more"):
        check(few)
