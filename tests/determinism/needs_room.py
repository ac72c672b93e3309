"""An environment that fails where torch has been imported; so this module does without."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class NeedsRoom(gymnasium.Env[Any, Any]):
    """In the processes that a run starts; the one that starts it has torch."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == "htsrl.placements.worker" and "torch" in sys.modules:
            raise RuntimeError("torch is here")
        return np.full(3, self._steps / 9, np.float32), float(action), self._steps == 9, False, {}
