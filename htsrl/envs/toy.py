"""Toys for tests and benchmarks: a game of pixels, a sleeper, and one whose every number can be recomputed."""

from __future__ import annotations

import time
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError

Info = dict[str, Any]
Float32 = NDArray[np.float32]
UInt8 = NDArray[np.uint8]

GRID = 11
CELL_PIXELS = 4
FRAME_SHAPE = (1, GRID * CELL_PIXELS, GRID * CELL_PIXELS)
PADDLE_REACH = 1  # cells to either side of the paddle's middle
PADDLE_COLOUR = 128
BALL_COLOUR = 255


class PixelCatch(gymnasium.Env[UInt8, np.int64]):
    """A ball falls one cell a step; the paddle, three cells wide, moves left, stays or moves right to catch it.

    Observation: 44x44 bytes, channels first, 11x11 cells. Reward: +1 for a catch, -1 for a miss, at the end of a
    drop, which is 10 steps after its start. The episode terminates after `num_drops` drops and is truncated at
    `step_limit` steps. Every ball can be caught from everywhere.
    """

    def __init__(self, num_drops: int = 5, step_limit: int | None = None) -> None:
        _require(num_drops >= 1, f"num_drops={num_drops} must be at least 1")
        _require(
            step_limit is None or step_limit >= 1, f"step_limit={step_limit} must be at least 1, or None for no limit"
        )
        self.observation_space = spaces.Box(0, 255, FRAME_SHAPE, np.uint8)
        self.action_space = spaces.Discrete(3)
        self._num_drops = num_drops
        self._step_limit = step_limit

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[UInt8, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._drops_left = self._num_drops
        self._paddle = GRID // 2
        self._new_ball()
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[UInt8, float, bool, bool, Info]:
        self._steps += 1
        self._paddle = min(max(self._paddle + int(action) - 1, PADDLE_REACH), GRID - 1 - PADDLE_REACH)
        self._ball_row += 1
        reward = 0.0
        if self._ball_row == GRID - 1:
            reward = 1.0 if abs(self._ball_column - self._paddle) <= PADDLE_REACH else -1.0
            self._drops_left -= 1
            if self._drops_left:
                self._new_ball()
        terminated = self._drops_left == 0
        truncated = self._steps == self._step_limit and not terminated
        return self._draw(), reward, terminated, truncated, {}

    def _new_ball(self) -> None:
        self._ball_row = 0
        self._ball_column = int(self.np_random.integers(GRID))

    def _draw(self) -> UInt8:
        frame = np.zeros(FRAME_SHAPE, np.uint8)
        left, right = (self._paddle - PADDLE_REACH) * CELL_PIXELS, (self._paddle + PADDLE_REACH + 1) * CELL_PIXELS
        frame[0, -CELL_PIXELS:, left:right] = PADDLE_COLOUR
        top, left = self._ball_row * CELL_PIXELS, self._ball_column * CELL_PIXELS
        frame[0, top : top + CELL_PIXELS, left : left + CELL_PIXELS] = BALL_COLOUR
        return frame


Law = Literal["exponential", "gamma", "pareto", "constant"]


class Sleeping(gymnasium.Env[Float32, np.int64]):
    """A simulator that takes its time: each step sleeps as long as `law` says, `mean_seconds` on average.

    `cv` is the gamma law's standard deviation over its mean, `shape` the Pareto law's. Observation: four
    numbers from -1 to 1. Reward: 1 if the action is 1 exactly when the first of the four, in the observation acted
    upon, is positive; else 0. The episode terminates after `episode_steps` steps.
    """

    def __init__(
        self,
        law: Law = "exponential",
        mean_seconds: float = 0.005,
        cv: float = 1.0,
        episode_steps: int = 200,
        shape: float = 1.5,
    ) -> None:
        _require(law in get_args(Law), f"law={law!r} is not {', '.join(get_args(Law))}")
        _require(0 <= mean_seconds < float("inf"), f"mean_seconds={mean_seconds} must be finite and not negative")
        _require(0 < cv < float("inf"), f"cv={cv} must be finite and above 0; use law='constant' for no spread")
        _require(shape > 1, f"shape={shape} must be above 1: else there is no mean")
        _require(episode_steps >= 1, f"episode_steps={episode_steps} must be at least 1")
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._law = law
        self._mean_seconds = mean_seconds
        self._cv = cv
        self._shape = shape
        self._episode_steps = episode_steps

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self._steps = 0
        # Observations are drawn first, so that under a given seed no law of sleep can change the trajectory.
        self._observations = self.np_random.uniform(-1.0, 1.0, (self._episode_steps + 1, 4)).astype(np.float32)
        self.sleep_seconds = self._draw_sleep_seconds()
        return self._observations[0].copy(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        if self._mean_seconds > 0:  # even time.sleep(0) costs a timer's slack, some 80 us
            time.sleep(self.sleep_seconds[self._steps])
        reward = float(int(action) == (self._observations[self._steps, 0] > 0))
        self._steps += 1
        return self._observations[self._steps].copy(), reward, self._steps == self._episode_steps, False, {}

    def _draw_sleep_seconds(self) -> list[float]:
        """How long each step of this episode will sleep."""
        size = self._episode_steps
        if self._law == "constant":
            return [self._mean_seconds] * size
        if self._law == "exponential":
            return list(map(float, self.np_random.exponential(self._mean_seconds, size)))
        if self._law == "pareto":
            scale = self._mean_seconds * (self._shape - 1.0) / self._shape
            return list(map(float, scale * (1.0 + self.np_random.pareto(self._shape, size))))
        shape = 1.0 / self._cv**2
        return list(map(float, self.np_random.gamma(shape, self._mean_seconds / shape, size)))


class Tagged(gymnasium.Env[Float32, np.int64]):
    """Every number it returns says where it belongs, so that a test can recompute it.

    tag = reset seed % 2**20 (without a seed, one is drawn below 2**31); an episode has 3 + tag % 7 steps and ends by
    termination if the tag is even, by truncation if it is odd. With s the episode's steps so far, T the steps since
    construction and a the last action (-1 after a reset), the observation is [tag, s, T, a] and the action A taken
    upon it earns 4 * s + A. All are whole numbers that float32 holds exactly (T up to 2**24).

    T remembers earlier episodes. With `count_total_steps=False` it is always 0, and the environment is a function of
    the reset seed and the actions since, as replaying an episode asks. A step after the end and an action
    outside 0..3 raise.
    """

    def __init__(self, count_total_steps: bool = True) -> None:
        low, high = np.array([0, 0, 0, -1], np.float32), np.array([2**20 - 1, 9, 2**24, 3], np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(4)
        self._count_total_steps = count_total_steps
        self._total_steps = 0
        self._ended = True

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self._tag = (int(self.np_random.integers(2**31)) if seed is None else seed) % 2**20
        self._steps = 0
        self._last_action = -1
        self._ended = False
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        if self._ended:
            raise gymnasium.error.ResetNeeded(f"step({action}) came after the end of the episode; reset first")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action {action!r} is not one of 0, 1, 2, 3")
        reward = float(4 * self._steps + int(action))
        self._steps += 1
        self._total_steps += self._count_total_steps
        self._last_action = int(action)
        self._ended = self._steps == 3 + self._tag % 7
        is_even = self._tag % 2 == 0
        return self._observation(), reward, self._ended and is_even, self._ended and not is_even, {}

    def _observation(self) -> Float32:
        return np.array([self._tag, self._steps, self._total_steps, self._last_action], np.float32)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


for _name in ("PixelCatch", "Sleeping", "Tagged"):
    gymnasium.register(id=f"htsrl/{_name}-v0", entry_point=f"{__name__}:{_name}")
