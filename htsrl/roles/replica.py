"""One environment and where it stands in its rollout."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.shared import Shared
from htsrl.errors import EnvironmentFailure
from htsrl.schedules.schedule import may_begin, storage_of
from htsrl.seeding import reset_seed
from htsrl.spaces import action_leaf, observation_leaves


class Stage(Enum):
    """What the replica waits for."""

    VERSION = "the next version"
    ACTION = "an action"
    FINAL_VALUE = "the value of the observation at which a time limit cut an episode"
    LAST_VALUE = "the value of the observation after the rollout's last step"
    NOTHING = "nothing, all rollouts are done"


class Replica:
    """Steps one environment through its rollouts; each `advance` takes it to its next wait."""

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        shared: Shared,
        seed: int,
        num_rollouts: int,
    ) -> None:
        self.index = index
        self.stage = Stage.VERSION
        self.rollout = 0
        self.row = 0
        self._env = env
        self._action = action_leaf(env.action_space)
        self._shape = observation_leaves(env.observation_space)["obs"].shape
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = shared.schedule
        self._seed = seed
        self._num_rollouts = num_rollouts
        self._num_steps = shared.storages.spec.num_steps
        self._episode = -1
        self._episode_return = 0.0
        self._episode_length = 0

    def advance(self) -> bool:
        if self.stage is Stage.VERSION:
            if not may_begin(self._schedule, self.rollout, self._exchange.published_version):
                return False
            self._begin_rollout()
            return True
        index = self.index
        if self.stage is Stage.NOTHING or self._exchange.answers[index] != self._exchange.requests[index]:
            return False
        if self.stage is Stage.ACTION:
            self._step()
        elif self.stage is Stage.FINAL_VALUE:
            self._write_observation(self._reset())
            self._enter_next_row(needs_value=False)
        else:
            self._complete_rollout()
        return True

    def close(self) -> None:
        self._env.close()

    def _begin_rollout(self) -> None:
        self._storage = storage_of(self.rollout)
        self.row = 0
        first_step = self.rollout * self._num_steps
        noise = self._storages.spec.noise
        self._storages["noise"][self._storage, : self._num_steps, self.index] = noise.draw(
            self._seed, self.index, first_step, self._num_steps
        )
        self._storages["episode_lengths"][self._storage, :, self.index] = 0
        self._storages["episode_returns"][self._storage, :, self.index] = 0.0
        self._storages["bootstrap_values"][self._storage, :, self.index] = 0.0
        if self.rollout == 0:
            self._write_observation(self._reset())
        else:
            previous = storage_of(self.rollout - 1)
            for array in self._storages.observations.values():
                array[self._storage, 0, self.index] = array[previous, self._num_steps, self.index]
        self._ask_for_action()

    def _step(self) -> None:
        storages, at = self._storages, (self._storage, self.row, self.index)
        action = self._action.to_env(storages["actions"][at])
        observation, reward, terminated, truncated = self._call("step", self._checked_step, action)
        storages["rewards"][at] = reward
        storages["terminated"][at] = terminated
        storages["truncated"][at] = truncated
        self._episode_return += reward
        self._episode_length += 1
        self.row += 1
        if terminated or truncated:
            storages["episode_returns"][at] = self._episode_return
            storages["episode_lengths"][at] = self._episode_length
        if terminated:
            self._write_observation(self._reset())
            self._enter_next_row(needs_value=False)
        elif truncated:
            self._write_observation(observation)
            self._ask_for_value(Stage.FINAL_VALUE)
        else:
            self._write_observation(observation)
            self._enter_next_row(needs_value=True)

    def _enter_next_row(self, needs_value: bool) -> None:
        """Go on after a step; the rollout's last observation needs a value unless it begins an episode."""
        if self.row < self._num_steps:
            self._ask_for_action()
        elif needs_value:
            self._ask_for_value(Stage.LAST_VALUE)
        else:
            self._complete_rollout()

    def _complete_rollout(self) -> None:
        self.rollout += 1
        self._exchange.completed_rollouts[self.index] = self.rollout
        self.stage = Stage.VERSION if self.rollout < self._num_rollouts else Stage.NOTHING

    def _ask_for_action(self) -> None:
        self.stage = Stage.ACTION
        self._exchange.requests[self.index] = self._exchange.tickets.to_act(self.rollout, self.row)

    def _ask_for_value(self, stage: Stage) -> None:
        self.stage = stage
        self._exchange.requests[self.index] = self._exchange.tickets.for_value(self.rollout, self.row)

    def _reset(self) -> Any:
        self._episode += 1
        self._episode_return = 0.0
        self._episode_length = 0
        seed = reset_seed(self._seed, self.index, self._episode)
        return self._call("reset", self._checked_reset, seed)

    def _checked_step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        observation, reward, terminated, truncated, _ = self._env.step(action)
        if not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}, which is not finite")
        return self._checked(observation), float(reward), bool(terminated), bool(truncated)

    def _checked_reset(self, seed: int) -> NDArray[Any]:
        observation, _ = self._env.reset(seed=seed)
        return self._checked(observation)

    def _checked(self, observation: Any) -> NDArray[Any]:
        """An observation that may be stored: NumPy would stretch a wrong shape without a word."""
        array = np.asarray(observation)
        if array.shape != self._shape:
            raise ValueError(f"the observation has shape {array.shape}, its space has {self._shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the observation is not finite: {array}")
        return array

    def _write_observation(self, observation: NDArray[Any]) -> None:
        self._storages["obs"][self._storage, self.row, self.index] = observation

    def _call(self, what: str, method: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return method(argument)
        except (Exception, SystemExit) as error:
            raise EnvironmentFailure(
                f"environment {self.index} raised {type(error).__name__} in {what}({argument}) at its step "
                f"{self.rollout * self._num_steps + self.row} (episode {self._episode}, "
                f"seed {reset_seed(self._seed, self.index, self._episode)}): {error}\n\n{traceback.format_exc()}"
            ) from error
