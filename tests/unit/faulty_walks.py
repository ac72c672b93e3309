"""Environments with one fault each, which are played in processes that import this file."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.team import Team

Info = dict[str, Any]
Float32 = NDArray[np.float32]
EPISODE_STEPS = 12


class Walk(gymnasium.Env[Float32, np.int64]):
    """A random walk without a fault, which others are given one by one."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1000.0, 1000.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.normal(size=3)
        return self.seen(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        self.steps += 1
        self.position = self.position + self.np_random.normal(size=3) * (1 + int(action))
        return self.seen(), self.earned(), self.steps == EPISODE_STEPS, False, {}

    def seen(self) -> Any:
        return self.position.astype(np.float32)

    def earned(self) -> float:
        return float(self.position[0])


class GlobalNumpy(Walk):
    def earned(self) -> float:
        return float(np.random.random())


class SystemRandom(Walk):
    def earned(self) -> float:
        return float(os.urandom(1)[0])


class StringHash(Walk):
    def earned(self) -> float:
        return float(hash(f"step {self.steps}") % 1000)


class Leaking(Walk):
    fuel = 1000.0

    def earned(self) -> float:
        self.fuel -= 1.0
        return self.fuel


class SharedByClass(Walk):
    total = [0]  # noqa: RUF012

    def earned(self) -> float:
        self.total[0] += 1
        return float(self.total[0])


class NotANumber(Walk):
    def seen(self) -> Any:
        return super().seen() * np.float32(np.nan if self.steps == 7 else 1)


class InfiniteReward(Walk):
    def earned(self) -> float:
        return float("inf") if self.steps == 7 else 1.0


class ChangingType(Walk):
    def seen(self) -> Any:
        return super().seen().astype(np.float64 if self.steps == 7 else np.float32)


class ChangingShape(Walk):
    def seen(self) -> Any:
        return super().seen()[: 2 if self.steps == 7 else 3]


class Saving(Walk):
    def save_state(self) -> bytes:
        return repr((self.steps, self.position.tolist(), self.np_random.bit_generator.state)).encode()

    def restore_state(self, state: bytes) -> None:
        self.steps, position, self.np_random.bit_generator.state = eval(state.decode())
        self.position = np.array(position)


class ForgetsGenerator(Saving):
    def restore_state(self, state: bytes) -> None:
        self.steps, position, _ = eval(state.decode())
        self.position = np.array(position)


class DrawsWhileSaving(Saving):
    def save_state(self) -> bytes:
        self.np_random.normal()
        return super().save_state()


class CannotRestore(Saving):
    def restore_state(self, state: bytes) -> None:
        raise OSError("the simulator is gone")


class SavingLeaky(Saving):
    """After an episode that ended the next one begins elsewhere, and a saved state knows where."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        is_after_an_end = self.steps == EPISODE_STEPS
        super().reset(seed=seed)
        self.position = self.position + is_after_an_end
        return self.seen(), {}


class Unsupported(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space: Any = spaces.Dict({"place": spaces.Text(3)})

    def seen(self) -> Any:
        return {"place": "abc"}


class Deterministic(Walk):
    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self.position = np.zeros(3)
        return self.seen(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        self.steps += 1
        self.position = self.position + int(action)
        return self.seen(), self.earned(), self.steps == EPISODE_STEPS, False, {}


class OneBuffer(Walk):
    def seen(self) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(3, np.float32)
        self.buffer[:] = self.position
        return self.buffer


class Ending(Walk):
    """Does something drastic in its 7th step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def earned(self) -> float:
        if self.steps == 7:
            if self.how == "raise":
                raise RuntimeError("out of bananas")
            if self.how == "sys.exit":
                sys.exit(3)
            if self.how == "os._exit":
                os._exit(3)
            time.sleep(600)
        return 0.0


class Gated(Walk):
    """Raises for what its mask forbids; told to, it forbids everything at its fourth step."""

    def __init__(self, shuts_down: bool = False) -> None:
        super().__init__()
        self.shuts_down = shuts_down

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        return super().reset(seed=seed, options=options)[0], self.info()

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        assert self.shuts_down or self.info()["action_mask"][action], "it was told not to"
        return *super().step(action)[:4], self.info()

    def info(self) -> Info:
        mask = np.eye(2, dtype=np.int8)[self.steps % 2]
        return {"action_mask": mask * 0 if self.shuts_down and self.steps == 4 else mask}


class Pair(Team):
    """Two agents; the first leaves at step 4, the other at step 8."""

    num_agents = 2

    def __init__(self, reward_rows: int = 2) -> None:
        self.observation_space = spaces.Box(-1000.0, 1000.0, (3,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.reward_rows = reward_rows

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[Any], Info]:
        gymnasium.Env.reset(self, seed=seed)
        self.active = np.ones(2, np.bool_)
        self.steps = 0
        return self.np_random.normal(size=(2, 3)).astype(np.float32), {}

    def step(self, action: NDArray[Any]) -> Any:
        self.steps += 1
        ends = self.active & np.array([self.steps == 4, self.steps == 8])
        self.active = self.active & ~ends
        seen = self.np_random.normal(size=(2, 3)).astype(np.float32)
        return seen, np.ones(self.reward_rows), ends, np.zeros(2, np.bool_), {}
