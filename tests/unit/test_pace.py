"""How fast an environment steps."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from htsrl import Config, Experiment, Placement
from htsrl.config import available_cores
from htsrl.envs.pace import is_slow
from htsrl.numerics import single_threaded
from htsrl.survey import draw_blueprint


class Paced(gymnasium.Env[Any, Any]):
    """Steps for so long, and resets for ever so much longer."""

    action_space = spaces.Discrete(2)

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
            time.sleep(self.step_seconds)
        return self._seen, 0.0, False, False, {}


def test_only_steps_count() -> None:
    assert not is_slow(Paced(0.0), "images")
    assert is_slow(Paced(0.003), "images")


def test_vectors_are_learned_from_in_less_time_than_images() -> None:
    assert not is_slow(Paced(0.0001), "images")
    assert is_slow(Paced(0.0001), "vectors")


def test_a_very_slow_one_is_not_looked_at_for_long() -> None:
    start = time.monotonic()
    assert is_slow(Paced(0.3), "images")
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
    experiment = Experiment(Paced, env_args=env_args, schedule=schedule, num_envs=64)
    with single_threaded():
        blueprint = draw_blueprint(Config(experiment, Placement()))
    assert len(blueprint.executor_envs) == max(available_cores() - leaves_a_core, 1)
