"""The environments, for frameworks that bring no preprocessing of their own for Atari, or a slower one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

from .job import Job, OffPolicyJob

Env = gymnasium.Env[Any, Any]
FIRE = 1


def make_env(job: Job | OffPolicyJob) -> Env:
    return make_atari(job.env) if job.is_atari else gymnasium.make(job.env)


def make_atari(env_id: str) -> Env:
    """Frame skip 4 with the maximum of 2, 84x84 grey, stack 4; a life is an episode, and begins with FIRE."""
    import ale_py

    gymnasium.register_envs(ale_py)
    emulator = gymnasium.make(env_id, frameskip=1, repeat_action_probability=0.0)
    return FrameStack(OneLife(AtariPreprocessing(emulator, noop_max=30, frame_skip=4, screen_size=84)))


class OneLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A lost life ends the episode; the next one continues with the same game, and presses FIRE. Rewards are signs."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        emulator: Any = env.unwrapped
        self._ale = emulator.ale
        self._fires = "FIRE" in emulator.get_action_meanings()
        self._lives = 0
        self._is_over = True

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        if self._is_over:
            observation, info = self.env.reset(**arguments)
        else:
            observation, _, _, _, info = self.env.step(0)
        if self._fires:
            observation, _, terminated, truncated, info = self.env.step(FIRE)
            if terminated or truncated:
                observation, info = self.env.reset(**arguments)
        self._is_over = False
        self._lives = self._ale.lives()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = terminated or truncated
        lives_before, self._lives = self._lives, self._ale.lives()
        return observation, float(np.sign(float(reward))), terminated or self._lives < lives_before, truncated, info


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The last four frames, oldest first; Gymnasium's own, with a queue of arrays, makes a step a tenth longer."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        assert env.observation_space.shape is not None
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, *env.observation_space.shape), np.uint8)
        self._frames = np.zeros(self.observation_space.shape, np.uint8)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        frame, info = self.env.reset(**arguments)
        self._frames[:] = frame
        return self._frames.copy(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._frames[:-1] = self._frames[1:]
        self._frames[-1] = frame
        return self._frames.copy(), reward, terminated, truncated, info
