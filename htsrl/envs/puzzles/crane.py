"""A crane with a camera: every kind of observation, and an action of three parts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.puzzles.arguments import require

Info = dict[str, Any]
Observation = dict[str, Any]

CAMERA_SIZE = 12
CRATE_SIZE = 2
CRATE_PLACES = CAMERA_SIZE - CRATE_SIZE + 1
NUM_GRIPS = 3
DIALS = (NUM_GRIPS, 5)
DIRECTIONS = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
"""Of the hook along (column, row), by gear."""


class Crane(gymnasium.Env[Observation, dict[str, Any]]):
    """At every step there is a new crate, to be reached, gripped and lit as the instruments say.

    Observation: "camera", 12x12x1 bytes with the crate as a white square of 2x2; "state", the gear and the hook's place
    from -1 to 1 on both axes; "switches", three bits; "dial", two digits. Action: "move" takes the hook by twice its
    value along (column, row), except that bit 0 of the gear reverses the columns and bit 1 the rows; "grip" should be
    the digits' sum modulo 3; "lamps" should be the first two switches, both reversed if the third is on. Reward: the
    mean of the grip (right or not), the lamps (share right) and the hook's nearness to the crate afterwards (1 at it, 0
    in the opposite corner). The episode is truncated after `length` steps. Best: `length` (20), as every crate is
    within reach. Chance: 9.4, from a mean grip of 1/3, lamps of 1/2 and nearness of 0.58; with only the grip, the lamps
    or the move left to chance: 15.6, 16.7 or 17.2.
    """

    def __init__(self, length: int = 20) -> None:
        require(length >= 1, f"length={length} must be at least 1")
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (CAMERA_SIZE, CAMERA_SIZE, 1), np.uint8),
                "state": spaces.Tuple((spaces.Discrete(len(DIRECTIONS)), spaces.Box(-1.0, 1.0, (2,), np.float32))),
                "switches": spaces.MultiBinary(3),
                "dial": spaces.MultiDiscrete(list(DIALS)),
            }
        )
        self.action_space = spaces.Dict(
            {
                "grip": spaces.Discrete(NUM_GRIPS),
                "move": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "lamps": spaces.MultiBinary(2),
            }
        )
        self._length = length

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._hook: NDArray[np.float64] = self.np_random.uniform(-1.0, 1.0, 2)
        rounds = self._length + 1
        self._crates = self.np_random.integers(CRATE_PLACES, size=(rounds, 2))
        self._gears = self.np_random.integers(len(DIRECTIONS), size=rounds)
        self._switches = self.np_random.integers(2, size=(rounds, 3), dtype=np.int8)
        self._dials = self.np_random.integers(DIALS, size=(rounds, 2))
        return self._observation(), {}

    def step(self, action: dict[str, Any]) -> tuple[Observation, float, bool, bool, Info]:
        reward = (self._grip_score(action["grip"]) + self._lamps_score(action["lamps"])) / 3
        reward += self._move_score(action["move"]) / 3
        self._steps += 1
        return self._observation(), reward, False, self._steps == self._length, {}

    def _grip_score(self, grip: Any) -> float:
        return float(int(grip) == int(self._dials[self._steps].sum()) % NUM_GRIPS)

    def _lamps_score(self, lamps: Any) -> float:
        first, second, reverses = self._switches[self._steps]
        return (int(lamps[0] == first ^ reverses) + int(lamps[1] == second ^ reverses)) / 2

    def _move_score(self, move: Any) -> float:
        """Moves the hook, and says how near to the crate it came."""
        self._hook = (self._hook + 2 * DIRECTIONS[self._gears[self._steps]] * move).clip(-1.0, 1.0)
        crate = 2 * self._crates[self._steps] / (CRATE_PLACES - 1) - 1
        return 1.0 - float(np.abs(self._hook - crate).sum()) / 4

    def _observation(self) -> Observation:
        column, row = self._crates[self._steps]
        camera = np.zeros((CAMERA_SIZE, CAMERA_SIZE, 1), np.uint8)
        camera[row : row + CRATE_SIZE, column : column + CRATE_SIZE] = 255
        return {
            "camera": camera,
            "state": (self._gears[self._steps], self._hook.astype(np.float32)),
            "switches": self._switches[self._steps].copy(),
            "dial": self._dials[self._steps].copy(),
        }
