"""The environments of one lane, with the episodes that each of them is in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.envs.lanes.lane import Bools, LaneOutcome, LaneSimulator
from htsrl.envs.observing import Rows
from htsrl.errors import RuleBroken
from htsrl.seeding import reset_seeds

NO_SEEDS = np.empty(0, np.int64)
COUNTERS = (("numbers", np.int64), ("scores", np.float64), ("lengths", np.int64), ("idle", np.bool_))
"""What is kept of the episodes of a lane, an array each."""


class LaneEnvs:
    """Counts along as the lane is stepped; an environment's seeds are those that it would have outside a lane."""

    def __init__(self, simulator: LaneSimulator, first_env: int, seed: int) -> None:
        self.simulator = simulator
        self.num_envs = simulator.num_envs
        self._first_env = first_env
        self._seed = seed
        self.numbers = np.full(self.num_envs, -1)
        """Of the episodes, from 0 on."""
        self.scores = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self.idle: Bools = np.zeros(self.num_envs, np.bool_)
        """Who will only begin its episode in the next step."""

    def reset(self, rows: Rows) -> None:
        """Begin the first episodes."""
        everyone = np.ones(self.num_envs, np.bool_)
        self.simulator.reset(self._next_seeds(everyone), rows)
        self._count_new(everyone)

    def step(self, actions: NDArray[Any], rows: Rows) -> LaneOutcome:
        outcome, took_part = self.simulator.step(actions, rows), ~self.idle
        if (outcome.ended & self.idle).any():
            env = int(np.flatnonzero(outcome.ended & self.idle)[0])
            raise RuleBroken(f"the lane's environment {env} ended in the step in which it should have begun an episode")
        self.scores += np.where(took_part, outcome.rewards, 0.0)
        self.lengths += took_part
        self.idle = np.zeros(self.num_envs, np.bool_)
        return outcome

    def begin_episodes(self, ended: Bools, rows: Rows) -> None:
        """Where episodes have ended, begin the next, now or in the next step."""
        self.simulator.begin_episodes(ended, self._next_seeds(ended), rows)
        self._count_new(ended)
        if self.simulator.idles:
            self.idle = ended

    def save(self) -> bytes:
        counters = [getattr(self, name).astype(dtype).tobytes() for name, dtype in COUNTERS]
        return b"".join([*counters, self.simulator.save_state()])

    def restore(self, state: bytes) -> None:
        """Of a lane that was reset."""
        position = 0
        for name, dtype in COUNTERS:
            array = np.frombuffer(state, dtype, self.num_envs, position).copy()
            setattr(self, name, array)
            position += array.nbytes
        self.simulator.restore_state(state[position:])

    def _next_seeds(self, envs: Bools) -> NDArray[np.int64]:
        """Of the episodes that these environments begin next."""
        if not self.simulator.seeds_episodes and (self.numbers >= 0).all():
            return NO_SEEDS
        places = np.flatnonzero(envs)
        return reset_seeds(self._seed, (self._first_env + places).tolist(), (self.numbers[places] + 1).tolist())

    def _count_new(self, envs: Bools) -> None:
        self.numbers[envs] += 1
        self.scores[envs] = 0.0
        self.lengths[envs] = 0
