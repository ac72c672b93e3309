"""Environments whose control period can be set: the same physics, acted on more or less often.

An episode lasts as long in seconds, and a reward is what a second of it is worth times the period, so returns can be
compared. The period, as a share of the longest, is the last number of the observation, and `info["dt"]` says it.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError

Info = dict[str, Any]
Array = NDArray[Any]
UPRIGHT_COSINE = 0.95
PENDULUM_LONGEST = 0.02


class ControlPeriod(gymnasium.Wrapper[Array, Array, Array, Array]):
    """An environment that is acted on every `dt` seconds."""

    def __init__(
        self, env: gymnasium.Env[Array, Array], dt: float, longest_dt: float, seconds: float, observe_dt: bool
    ) -> None:
        super().__init__(env)
        self.dt = dt
        self._share = dt / longest_dt
        self._max_steps = round(seconds / dt)
        self._observe_dt = observe_dt
        self._steps = 0
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        if observe_dt:
            low, high = (np.append(bound, last) for bound, last in ((space.low, 0.0), (space.high, 1.0)))
            self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        else:
            self.observation_space = spaces.Box(
                space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32
            )

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Array, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._steps = 0
        return self._seen(observation), {**info, "dt": self.dt}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, Info]:
        observation, reward, terminated, _, info = self.env.step(action)
        self._steps += 1
        is_over = self._steps >= self._max_steps
        return self._seen(observation), float(reward) * self._share, terminated, is_over, {**info, "dt": self.dt}

    def _seen(self, observation: Array) -> Array:
        seen = np.append(observation, self._share) if self._observe_dt else observation
        return seen.astype(np.float32)


class SparsePendulum(gymnasium.Wrapper[Array, Array, Array, Array]):
    """One point for every step in which the pendulum is upright."""

    def step(self, action: Array) -> tuple[Array, float, bool, bool, Info]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(observation[0] > UPRIGHT_COSINE), terminated, truncated, info


def pendulum(
    dt: float = PENDULUM_LONGEST,
    seconds: float = 8.0,
    observe_dt: bool = True,
    reward: Literal["sparse", "dense"] = "sparse",
    **arguments: Any,
) -> gymnasium.Env[Any, Any]:
    """Swing a pendulum up and keep it there: one point a step for that, or Pendulum-v1's own reward."""
    _check_above_0(dt=dt, seconds=seconds)
    if reward not in ("sparse", "dense"):
        raise ConfigError(f"reward={reward!r} must be sparse or dense")
    made: Any = gymnasium.make("Pendulum-v1", disable_env_checker=True, **arguments).unwrapped
    made.dt = dt
    inner = SparsePendulum(made) if reward == "sparse" else made
    return ControlPeriod(inner, dt, PENDULUM_LONGEST, seconds, observe_dt)


def half_cheetah(
    dt: float = 0.05, seconds: float = 50.0, observe_dt: bool = True, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    return _of_mujoco("HalfCheetah-v5", dt, 0.05, seconds, observe_dt, arguments)


def hopper(
    dt: float = 0.008, seconds: float = 8.0, observe_dt: bool = True, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    return _of_mujoco("Hopper-v5", dt, 0.008, seconds, observe_dt, arguments)


def _of_mujoco(
    env_id: str, dt: float, usual_dt: float, seconds: float, observe_dt: bool, arguments: Info
) -> gymnasium.Env[Any, Any]:
    """`dt` is a whole number of the simulator's own steps, at most the usual one."""
    _check_above_0(dt=dt, seconds=seconds)
    usual = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    timestep = float(usual.model.opt.timestep)  # type: ignore[attr-defined]
    usual.close()
    frame_skip = round(dt / timestep)
    if frame_skip < 1 or abs(frame_skip * timestep - dt) > 1e-9 or dt > usual_dt + 1e-9:
        choices = ", ".join(f"{count * timestep:g}" for count in range(1, round(usual_dt / timestep) + 1))
        raise ConfigError(f"dt={dt} is not a whole number of steps of {timestep:g} s up to {usual_dt}; use {choices}")
    made = gymnasium.make(env_id, disable_env_checker=True, frame_skip=frame_skip, **arguments).unwrapped
    return ControlPeriod(made, dt, usual_dt, seconds, observe_dt)


def _check_above_0(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ConfigError(f"{name}={number} must be above 0")
